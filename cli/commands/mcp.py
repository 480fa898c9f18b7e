"""`callboard mcp`: list and test MCP servers and their tools, call one by hand, and serve agents as an MCP server."""

from __future__ import annotations

import sys
from typing import Any

import click

from .. import options


@click.group("mcp", cls=options.ListByDefault, short_help="List and try MCP servers, or serve agents as one.")
def command() -> None:
    """MCP servers lend tools to agents. They stand in mcp.json of the config directory; `init` writes one.

    Without a command: list.
    """


@command.command("init", short_help="Write an mcp.json that explains itself.")
@click.option("--force", is_flag=True, help="Write over the file that is there.")
@options.config_dir
def init(force: bool, config_dir: str | None) -> str:
    """Writes mcp.json into the config directory: a server that works, others to enable, and what the keys mean."""
    from ..actions.mcp import make_mcp_json

    return make_mcp_json(config_dir, force=force)


@command.command("list", short_help="List the servers of mcp.json.")
@options.output_and_config
def list_all(as_json: bool, config_dir: str | None) -> int:
    """Lists the servers: how each is reached, who shares it, and what is known of its tools. Starts none of them.

    Exit code 2 if an entry can't be used; stderr lists the problems.
    """
    from ..actions.mcp import list_servers

    text, broken = list_servers(config_dir, as_json=as_json)
    sys.stdout.write(text)
    return 2 if broken else 0


@command.command("test", short_help="Start servers, shake hands, see what they offer.")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=options.complete_server)
@options.output_and_config
def test(names: tuple[str, ...], as_json: bool, config_dir: str | None) -> int:
    """Starts or reaches each server, shakes hands, asks what it offers, and ends it; without NAME, all of them.

    It prints each as soon as it is known.

    Exit code 6 if one can't be reached, 3 if a credential or another part of its configuration is missing.
    """
    from ..actions.mcp import test_servers

    return test_servers(names, config_dir, as_json=as_json)


@command.command("tools", short_help="List the tools of a server.")
@click.argument("name", shell_complete=options.complete_server)
@click.option("--cached", is_flag=True, help="As remembered from the last time; the server is not started.")
@options.output_and_config
def tools(name: str, cached: bool, as_json: bool, config_dir: str | None) -> int:
    """Lists the tools that agents may use of a server: names, parameters (those with ? may be left out), whether a call
    asks first, and what they are for.
    """
    from ..actions.mcp import list_tools

    return list_tools(name, config_dir, cached=cached, as_json=as_json)


@command.command("call", short_help="Call a tool of a server by hand.")
@click.argument("server", shell_complete=options.complete_server)
@click.argument("tool")
@click.option("--json", "arguments", metavar="ARGS", default="{}", help="The arguments, a JSON object; - reads stdin.")
@options.yes_and_allow
@options.no_input
@click.option("-v", "--verbose", is_flag=True, help="Tell on stderr what happens meanwhile.")
@options.output_and_config
def call(**given: Any) -> int:
    """Calls TOOL of SERVER as a model would, and prints on stdout what the model would read.

    The same permissions hold, and what the server asks is asked at the terminal. Exit code 1 if the tool failed or was
    not permitted, 2 if there is no such tool or the arguments don't fit, 5 if it failed for want of a person whom the
    server asked, 6 if the server can't be reached.

    \b
    callboard mcp call time get_current_time --json '{"timezone": "Asia/Tokyo"}'
    """
    from ..actions.tool_calls import call_mcp_tool

    return call_mcp_tool(**given)


@command.command("status", short_help="Show the servers that run now.")
@options.text_or_json
def status(as_json: bool) -> str:
    """Shows the servers of all callboards that run now: state, process, users, calls, and the pool's counters."""
    from ..actions.mcp_status import show_status

    return show_status(as_json=as_json)


@command.command("reload", short_help="Have running servers started anew.")
@click.argument("name", required=False, shell_complete=options.complete_server)
@options.text_or_json
def reload(name: str | None, as_json: bool) -> int:
    """Has every callboard that runs now read mcp.json again and start the server NAME (or all) anew.

    Calls under way are finished by the old process.
    """
    from ..actions.mcp_status import reload_servers

    return reload_servers(name, as_json=as_json)


@command.command("serve", short_help="Be an MCP server: offer agents as tools.")
@click.argument("agents", metavar="[AGENT]...", nargs=-1, shell_complete=options.complete_target)
@click.option("--http", is_flag=True, help="Over HTTP instead of standard input and output.")
@click.option("--host", metavar="HOST", help="With --http: where to listen [default: 127.0.0.1].")
@click.option(
    "--port", metavar="PORT", type=click.IntRange(0, 65535), help="With --http; 0 takes a free one [default: 8808]."
)
@click.option("--token-file", metavar="FILE", help="With --http: clients must send this file's text as bearer token.")
@options.model
@options.permissions
@click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@options.config_dir
def serve(**given: Any) -> int:
    """Offers each AGENT as a tool to an MCP client; without AGENT, all in the config directory.

    \b
    callboard mcp serve clerk            over stdio, for programs that start it themselves
    callboard mcp serve clerk --http     at http://127.0.0.1:8808/mcp
    """
    of_http = [f"--{name.replace('_', '-')}" for name in ("host", "port", "token_file") if given[name] is not None]
    if of_http and not given["http"]:
        raise click.UsageError(f"{', '.join(of_http)} can't be without --http.")
    from ..actions.mcp_server import serve_agents

    return serve_agents(**given)
