"""`callboard vault` and `auth`: secrets in the vault, and sign-ins by OAuth to providers of models and MCP servers."""

from __future__ import annotations

from typing import Any

import click

from .. import options

_known = click.argument("name", shell_complete=options.complete_secret)


@click.group("vault", short_help="Store API keys and other secrets, encrypted.")
def vault() -> None:
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


@vault.command("add", short_help="Store a new secret.")
@click.argument("name")
@options.no_input
@options.config_dir
def add(name: str, no_input: bool, config_dir: str | None) -> int:
    """Store a secret as NAME: letters, digits, `_` and `-`. Ask for its value, or read it from standard input.

    Exit code 2 if the secret exists; to replace it: callboard vault update NAME.
    """
    from ..actions.vault import put_secret

    return put_secret(name, new=True, no_input=no_input, config_dir=config_dir)


@vault.command("update", short_help="Change the value of a secret.")
@_known
@options.no_input
@options.config_dir
def update(name: str, no_input: bool, config_dir: str | None) -> int:
    """Change the value of the secret NAME. Ask for the new value, or read it from standard input.

    Running processes keep the value that they started with.
    """
    from ..actions.vault import put_secret

    return put_secret(name, new=False, no_input=no_input, config_dir=config_dir)


@vault.command("get", short_help="Print the value of a secret.")
@_known
@options.no_input
@options.config_dir
def get(name: str, no_input: bool, config_dir: str | None) -> str:
    """Print the value of the secret NAME on standard output, and nothing else."""
    from ..actions.vault import secret_value

    return f"{secret_value(name, no_input=no_input, config_dir=config_dir)}\n"


@vault.command("delete", short_help="Delete secrets permanently.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=options.complete_secret)
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.no_input
@options.config_dir
def delete(names: tuple[str, ...], yes: bool, no_input: bool, config_dir: str | None) -> int:
    """Delete the secrets NAMES permanently, after a question."""
    from ..actions.vault import remove_secrets

    return remove_secrets(names, yes=yes, no_input=no_input, config_dir=config_dir)


@vault.command("list", short_help="List the names of all secrets.")
@options.no_input
@options.output_and_config
def list_(no_input: bool, as_json: bool, config_dir: str | None) -> str:
    """List the names of all secrets. No value is printed."""
    from ..actions.vault import list_secrets

    return list_secrets(as_json=as_json, no_input=no_input, config_dir=config_dir)


@vault.command("import", short_help="Store several secrets at once.")
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


@vault.command("rotate", short_help="Encrypt the vault for a new identity.")
@click.option(
    "--leave-out", is_flag=True, help="Rotate even if `recipients` lacks a public key that can decrypt the vault now."
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


@click.group("auth", short_help="Sign in to providers of models and to MCP servers.")
def auth() -> None:
    """Sign in to providers of models and to MCP servers by OAuth. Tokens are stored in the state directory, and
    refreshed automatically.

    \b
    callboard auth login my-gemini       a client of config.yaml with `auth: oauth`
    callboard auth login mcp:docs        the MCP server `docs` of mcp.json
    callboard auth status
    callboard auth logout my-gemini
    """


@auth.command("login", short_help="Sign in to a client or an MCP server.")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=options.complete_sign_in)
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
@click.option("--device", is_flag=True, help="Sign in on any device, by a code, if the provider supports that.")
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPE",
    multiple=True,
    help="Request this scope in addition to those of the file; repeatable.",
)
@options.no_input
@options.config_dir
def login(**given: Any) -> int:
    """Sign in to NAME: a client of config.yaml with `auth: oauth`, or mcp:SERVER of mcp.json. Without NAME, sign in to
    the only such client.

    The browser opens a page of the provider, which redirects to a port of this machine. If the browser is on another
    machine, the redirect fails: paste the address that the browser then shows, or the code that the page shows.

    Exit code 3 if the provider or you refused; 5 if no user is present, or the sign-in took more than five minutes.
    """
    from ..actions.auth import sign_in_to_client, sign_in_to_server

    if (given["name"] or "").startswith("mcp:"):
        if given.pop("device"):
            raise click.UsageError("--device is only for clients of models, not for MCP servers.")
        return sign_in_to_server(**given)
    return sign_in_to_client(**given)


@auth.command("status", short_help="List your sign-ins and their expiry.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=options.complete_sign_in)
@options.output_and_config
def status(names: tuple[str, ...], as_json: bool, config_dir: str | None) -> int:
    """List the services to sign in to, whether you are signed in, the scopes, and the expiry. No token is printed.

    No service is contacted, so a token may have been revoked. To check one: callboard models check --live CLIENT:MODEL,
    or callboard mcp test SERVER.

    Exit code 3 if a named service has no sign-in.
    """
    import sys

    from ..actions.auth import as_table, client_rows, server_rows
    from ..render.text import json_object

    clients = tuple(name for name in names if not name.startswith("mcp:"))
    servers = tuple(name for name in names if name.startswith("mcp:"))
    found = client_rows(clients, config_dir) if clients or not names else []
    found += server_rows(servers, config_dir) if servers or not names else []
    text = json_object(sign_ins=found) if as_json else as_table(found)
    sys.stdout.write(text or "no client of config.yaml has `auth: oauth`, and no MCP server has a sign-in\n")
    return 3 if names and not all(row["signed_in"] for row in found) else 0


@auth.command("logout", short_help="Delete a sign-in, and revoke its token.")
@click.argument("name", shell_complete=options.complete_sign_in)
@options.config_dir
def logout(name: str, config_dir: str | None) -> str:
    """Delete the token of NAME, and revoke it at the provider."""
    from ..actions.auth import sign_out_of_client, sign_out_of_server

    if name.startswith("mcp:"):
        return sign_out_of_server(name, config_dir)
    return sign_out_of_client(name, config_dir)
