"""`callboard vault`: store, print, list, remove and rotate secrets in the vault."""

from __future__ import annotations

from typing import Any

import click

from .. import options

_known = click.argument("name", shell_complete=options.complete_secret)


@click.group("vault", short_help="Keep API keys and other secrets, encrypted.")
def command() -> None:
    """Keeps secrets in an encrypted file. Where config.yaml, mcp.json or a variable of an agent says {{NAME}}, the
    vault's NAME is meant, else the environment's.

    Values are typed at a hidden prompt or piped in; a value on a command line would be seen by `ps` and kept by your
    shell's history.

    \b
    callboard vault add OPENAI_KEY               then `api_key: '{{OPENAI_KEY}}'` in config.yaml
    gh auth token | callboard vault add GITHUB_TOKEN
    callboard vault list

    The file is vault.age in the config directory, opened by an identity that is made at the first use. docs/vault.md
    tells of passphrases, keyrings, and of vaults of other programs (1Password, gopass, AWS, ...).
    """


@command.command("add", short_help="Keep a new secret.")
@click.argument("name")
@options.no_input
@options.config_dir
def add(name: str, no_input: bool, config_dir: str | None) -> int:
    """Keeps a secret called NAME: letters, digits, `_` and `-`. Its value is asked for, or read from standard input.

    Exit code 2 if there is one of that name already: callboard vault update NAME.
    """
    from ..actions.vault import put_secret

    return put_secret(name, new=True, no_input=no_input, config_dir=config_dir)


@command.command("update", short_help="Change the value of a secret.")
@_known
@options.no_input
@options.config_dir
def update(name: str, no_input: bool, config_dir: str | None) -> int:
    """Gives the secret called NAME another value, which is asked for, or read from standard input.

    What runs already keeps the value that it was started with.
    """
    from ..actions.vault import put_secret

    return put_secret(name, new=False, no_input=no_input, config_dir=config_dir)


@command.command("get", short_help="Print the value of a secret.")
@_known
@options.no_input
@options.config_dir
def get(name: str, no_input: bool, config_dir: str | None) -> str:
    """Prints the value of the secret called NAME on standard output, and nothing else."""
    from ..actions.vault import secret_value

    return f"{secret_value(name, no_input=no_input, config_dir=config_dir)}\n"


@command.command("delete", short_help="Remove secrets for good.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=options.complete_secret)
@click.option("--yes", is_flag=True, help="Does not ask.")
@options.no_input
@options.config_dir
def delete(names: tuple[str, ...], yes: bool, no_input: bool, config_dir: str | None) -> int:
    """Removes the secrets called NAMES for good, after a question."""
    from ..actions.vault import remove_secrets

    return remove_secrets(names, yes=yes, no_input=no_input, config_dir=config_dir)


@command.command("list", short_help="List the names of all secrets.")
@options.no_input
@options.output_and_config
def list_(no_input: bool, as_json: bool, config_dir: str | None) -> str:
    """Lists the names of all secrets. No value is shown."""
    from ..actions.vault import list_secrets

    return list_secrets(as_json=as_json, no_input=no_input, config_dir=config_dir)


@command.command("import", short_help="Keep many secrets at once.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--from-env", is_flag=True, help="Keeps the variables NAME... of the environment.")
@click.option("--from-json", metavar="FILE", help="Keeps a JSON object of texts; - is standard input.")
@click.option("--replace", is_flag=True, help="Secrets that are there already get the new values.")
@options.no_input
@options.config_dir
def import_(**given: Any) -> int:
    """Keeps many secrets at once; all of them or, if something is wrong, none.

    \b
    callboard vault import --from-env OPENAI_API_KEY GITHUB_TOKEN
    callboard vault import --from-json secrets.json

    Loki's own vault (vault.yml) is encrypted in a way of its own that callboard can't read. Let Loki open it:

    \b
    for name in $(loki --list-secrets); do loki --get-secret $name | callboard vault add $name; done
    """
    from ..actions.vault import import_secrets

    return import_secrets(**given)


@command.command("rotate", short_help="Encrypt the vault for a fresh identity.")
@click.option("--leave-out", is_flag=True, help="Also if someone who can open it now can't do so afterwards.")
@options.no_input
@options.config_dir
def rotate(leave_out: bool, no_input: bool, config_dir: str | None) -> int:
    """Encrypts the vault anew, for a fresh identity, or by a new passphrase that is asked for.

    Former identities stay in their file, so that backups and other vaults can still be opened; what is written from now
    on needs the fresh one. The values are the same: who had the former identity and the file knows them, so change
    them where they are good for something.

    Those who share the vault put your fresh public key, which is printed, in the place of the former one
    in `recipients`.
    """
    from ..actions.vault import rotate_vault

    return rotate_vault(leave_out=leave_out, no_input=no_input, config_dir=config_dir)
