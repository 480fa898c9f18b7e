"""`callboard vault`: store, print, list, remove and rotate secrets in the vault."""

from __future__ import annotations

from typing import Any

import click

from .. import options

_known = click.argument("name", shell_complete=options.complete_secret)


@click.group("vault", short_help="Store API keys and other secrets, encrypted.")
def command() -> None:
    """Store secrets in an encrypted file. Where config.yaml, mcp.json or a variable of an agent contains {{NAME}}, the
    secret NAME of the vault is inserted, else the variable NAME of the environment.

    Type a value at the hidden prompt, or pipe it in. A value on the command line would be visible to `ps`, and stored
    in the history of your shell.

    \b
    callboard vault add OPENAI_KEY               then `api_key: '{{OPENAI_KEY}}'` in config.yaml
    gh auth token | callboard vault add GITHUB_TOKEN
    callboard vault list

    The file is vault.age in the config directory. Its key, an age identity, is made at the first use. docs/vault.md
    describes passphrases, keyrings, and vaults of other programs (1Password, gopass, AWS, ...).
    """


@command.command("add", short_help="Store a new secret.")
@click.argument("name")
@options.no_input
@options.config_dir
def add(name: str, no_input: bool, config_dir: str | None) -> int:
    """Store a secret as NAME: letters, digits, `_` and `-`. Ask for its value, or read it from standard input.

    Exit code 2 if the secret exists; to replace it: callboard vault update NAME.
    """
    from ..actions.vault import put_secret

    return put_secret(name, new=True, no_input=no_input, config_dir=config_dir)


@command.command("update", short_help="Change the value of a secret.")
@_known
@options.no_input
@options.config_dir
def update(name: str, no_input: bool, config_dir: str | None) -> int:
    """Change the value of the secret NAME. Ask for the new value, or read it from standard input.

    Running processes keep the value that they started with.
    """
    from ..actions.vault import put_secret

    return put_secret(name, new=False, no_input=no_input, config_dir=config_dir)


@command.command("get", short_help="Print the value of a secret.")
@_known
@options.no_input
@options.config_dir
def get(name: str, no_input: bool, config_dir: str | None) -> str:
    """Print the value of the secret NAME on standard output, and nothing else."""
    from ..actions.vault import secret_value

    return f"{secret_value(name, no_input=no_input, config_dir=config_dir)}\n"


@command.command("delete", short_help="Delete secrets permanently.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=options.complete_secret)
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.no_input
@options.config_dir
def delete(names: tuple[str, ...], yes: bool, no_input: bool, config_dir: str | None) -> int:
    """Delete the secrets NAMES permanently, after a question."""
    from ..actions.vault import remove_secrets

    return remove_secrets(names, yes=yes, no_input=no_input, config_dir=config_dir)


@command.command("list", short_help="List the names of all secrets.")
@options.no_input
@options.output_and_config
def list_(no_input: bool, as_json: bool, config_dir: str | None) -> str:
    """List the names of all secrets. No value is printed."""
    from ..actions.vault import list_secrets

    return list_secrets(as_json=as_json, no_input=no_input, config_dir=config_dir)


@command.command("import", short_help="Store several secrets at once.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--from-env", is_flag=True, help="Store the variables NAME... of the environment.")
@click.option("--from-json", metavar="FILE", help="Store a JSON object of texts; - is standard input.")
@click.option("--replace", is_flag=True, help="Overwrite existing secrets.")
@options.no_input
@options.config_dir
def import_(**given: Any) -> int:
    """Store several secrets at once: all of them or, after an error, none.

    \b
    callboard vault import --from-env OPENAI_API_KEY GITHUB_TOKEN
    callboard vault import --from-json secrets.json

    Callboard can't decrypt Loki's vault (vault.yml). Let Loki decrypt it:

    \b
    for name in $(loki --list-secrets); do loki --get-secret $name | callboard vault add $name; done
    """
    from ..actions.vault import import_secrets

    return import_secrets(**given)


@command.command("rotate", short_help="Encrypt the vault for a new identity.")
@click.option(
    "--leave-out", is_flag=True, help="Rotate even if a present reader of the vault is missing in `recipients`."
)
@options.no_input
@options.config_dir
def rotate(leave_out: bool, no_input: bool, config_dir: str | None) -> int:
    """Encrypt the vault for a new identity, or with a new passphrase, which is asked for.

    Former identities stay in their file, so that they can still decrypt backups and other vaults. From now on the vault
    needs the new one. The secrets themselves do not change: a person who had the former identity and the file knows
    them. Replace these secrets at their providers too.

    If the vault is shared, the other users must replace your former public key in `recipients` with the new one, which
    is printed.
    """
    from ..actions.vault import rotate_vault

    return rotate_vault(leave_out=leave_out, no_input=no_input, config_dir=config_dir)
