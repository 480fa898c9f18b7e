"""`callboard auth`: sign in by OAuth to clients of config.yaml with `auth: oauth`, and to MCP servers."""

from __future__ import annotations

from typing import Any

import click

from .. import options


@click.group("auth", short_help="Sign in to providers of models and to MCP servers.")
def command() -> None:
    """Sign in to providers of models and to MCP servers by OAuth. Tokens are stored in the state directory, and
    refreshed automatically.

    \b
    callboard auth login my-gemini       a client of config.yaml with `auth: oauth`
    callboard auth login mcp:docs        the MCP server `docs` of mcp.json
    callboard auth status
    callboard auth logout my-gemini
    """


@command.command("login", short_help="Sign in to a client or an MCP server.")
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
    machine, the redirect fails: paste the address at which it ended, or the code that the page shows.

    Exit code 3 if the provider or you refused; 5 if no user is present, or the sign-in took more than five minutes.
    """
    from ..actions.auth import sign_in_to_client, sign_in_to_server

    if (given["name"] or "").startswith("mcp:"):
        if given.pop("device"):
            raise click.UsageError("--device is only for clients of models, not for MCP servers.")
        return sign_in_to_server(**given)
    return sign_in_to_client(**given)


@command.command("status", short_help="List your sign-ins and their expiry.")
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


@command.command("logout", short_help="Delete a sign-in, and revoke its token.")
@click.argument("name", shell_complete=options.complete_sign_in)
@options.config_dir
def logout(name: str, config_dir: str | None) -> str:
    """Delete the token of NAME, and revoke it at the provider."""
    from ..actions.auth import sign_out_of_client, sign_out_of_server

    if name.startswith("mcp:"):
        return sign_out_of_server(name, config_dir)
    return sign_out_of_client(name, config_dir)
