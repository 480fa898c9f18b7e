"""`callboard mcp`: list and test MCP servers and their tools, call one by hand, and serve agents as an MCP server."""

from __future__ import annotations

import sys
from typing import Any

import click

from .. import options


@click.group("mcp", cls=options.ListByDefault, short_help="List and try MCP servers, or serve agents as one.")
def command() -> None:
    """List and try MCP servers, which provide tools for agents, or serve agents as one. The servers are configured in
    mcp.json of the config directory; `init` writes one.

    Without a command: list.
    """


@command.command("init", short_help="Write an mcp.json with comments.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@options.config_dir
def init(force: bool, config_dir: str | None) -> str:
    """Write mcp.json into the config directory, with comments, a working server, and others to enable."""
    from ..actions.mcp import make_mcp_json

    return make_mcp_json(config_dir, force=force)


@command.command("list", short_help="List the servers of mcp.json.")
@options.output_and_config
def list_all(as_json: bool, config_dir: str | None) -> int:
    """List the servers: command or address of each, how it is shared, and the tools at its last connection. No server
    is started.

    Exit code 2 if an entry is invalid; stderr lists the problems.
    """
    from ..actions.mcp import list_servers

    text, broken = list_servers(config_dir, as_json=as_json)
    sys.stdout.write(text)
    return 2 if broken else 0


@command.command("test", short_help="Start servers, and list their capabilities.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=options.complete_server)
@options.output_and_config
def test(names: tuple[str, ...], as_json: bool, config_dir: str | None) -> int:
    """Start or reach each server, initialise the connection, list its capabilities, and end it; without NAME, all
    servers.

    Each result is printed as soon as it is known.

    Exit code 6 if a server can't be reached, 3 if a credential or another part of its configuration is missing.
    """
    from ..actions.mcp import test_servers

    return test_servers(names, config_dir, as_json=as_json)


@command.command("tools", short_help="List the tools of a server.")
@click.argument("name", shell_complete=options.complete_server)
@click.option("--cached", is_flag=True, help="Show the tools of the last connection, without starting the server.")
@options.output_and_config
def tools(name: str, cached: bool, as_json: bool, config_dir: str | None) -> int:
    """List the tools of a server that agents may use: name, parameters (optional ones with ?), description, and whether
    a call asks for permission.
    """
    from ..actions.mcp import list_tools

    return list_tools(name, config_dir, cached=cached, as_json=as_json)


@command.command("call", short_help="Call a tool of a server.")
@click.argument("server", shell_complete=options.complete_server)
@click.argument("tool")
@click.option("--json", "arguments", metavar="ARGS", default="{}", help="Arguments as a JSON object; - reads stdin.")
@options.yes_and_allow
@options.no_input
@click.option("-v", "--verbose", is_flag=True, help="Print the progress of the call on stderr.")
@options.output_and_config
def call(**given: Any) -> int:
    """Call TOOL of SERVER as an agent does, and print the result that a model would read on stdout.

    The same permissions apply, and questions of the server are asked at the terminal. Exit code 1 if the tool failed or
    was not permitted, 2 if there is no such tool or the arguments do not fit, 5 if it failed because no user was
    present to answer a question of the server, 6 if the server can't be reached.

    \b
    callboard mcp call time get_current_time --json '{"timezone": "Asia/Tokyo"}'
    """
    from ..actions.tool_calls import call_mcp_tool

    return call_mcp_tool(**given)


@command.command("status", short_help="Show the running servers.")
@options.text_or_json
def status(as_json: bool) -> str:
    """Show the servers of all your running Callboard processes: state, process, users, calls, and the counters of the
    pool.
    """
    from ..actions.mcp_status import show_status

    return show_status(as_json=as_json)


@command.command("reload", short_help="Restart running servers.")
@click.argument("name", required=False, shell_complete=options.complete_server)
@options.text_or_json
def reload(name: str | None, as_json: bool) -> int:
    """Make all your running Callboard processes read mcp.json again, and restart the server NAME, or all.

    Calls under way finish in the old process.
    """
    from ..actions.mcp_status import reload_servers

    return reload_servers(name, as_json=as_json)


@command.command("serve", short_help="Serve agents as tools to an MCP client.")
@click.argument("agents", metavar="[AGENT]...", nargs=-1, shell_complete=options.complete_target)
@click.option("--http", is_flag=True, help="Serve over HTTP instead of standard input and output.")
@click.option("--host", metavar="HOST", help="With --http: address to listen on [default: 127.0.0.1].")
@click.option(
    "--port", metavar="PORT", type=click.IntRange(0, 65535), help="With --http: port, 0 for a free one [default: 8808]."
)
@click.option("--token-file", metavar="FILE", help="With --http: require the text of this file as bearer token.")
@options.model
@options.permissions
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
@options.config_dir
def serve(**given: Any) -> int:
    """Offer each AGENT as a tool to an MCP client; without AGENT, all agents in the config directory.

    \b
    callboard mcp serve clerk            over stdio, for programs that start it themselves
    callboard mcp serve clerk --http     at http://127.0.0.1:8808/mcp
    """
    # These flags have no defaults, so that a given one can be recognised; `..actions.mcp` has the defaults.
    of_http = [f"--{name.replace('_', '-')}" for name in ("host", "port", "token_file") if given[name] is not None]
    if of_http and not given["http"]:
        raise click.UsageError(f"{', '.join(of_http)} needs --http.")
    from ..actions.mcp import serve_agents

    return serve_agents(**given)
