"""`callboard tools`: list tools, show one as models see it, and call one by hand."""

from __future__ import annotations

import sys
from typing import Any

import click

from .. import options

_of_agent = click.option(
    "--agent",
    metavar="NAME",
    shell_complete=options.complete_target,
    help="Include the own tools of this agent.",
)


@click.group("tools", cls=options.ListByDefault, short_help="List, show and try tools.")
def command() -> None:
    """List, show and try the tools that agents may call: your own, in functions/tools of the config directory, and the
    built-in ones.

    Without a command: list.
    """


@command.command("list", short_help="List the tools.")
@_of_agent
@options.output_and_config
def list_all(agent: str | None, as_json: bool, config_dir: str | None) -> int:
    """List all tools with their descriptions. With --agent, the agent's own tools come first."""
    from ..actions.tools import list_tools

    text, broken = list_tools(agent, config_dir, as_json=as_json)
    sys.stdout.write(text)
    return 2 if broken else 0


@command.command("show", short_help="Show a tool as models receive it.")
@click.argument("name")
@_of_agent
@options.output_and_config
def show(name: str, agent: str | None, as_json: bool, config_dir: str | None) -> str:
    """Show the description of a tool, its effect, its source, and the schema of its arguments."""
    from ..actions.tools import show_tool

    return show_tool(name, agent, config_dir, as_json=as_json)


@command.command("call", short_help="Run a tool.")
@click.argument("name")
@click.option("--json", "arguments", metavar="ARGS", default="{}", help="Arguments as a JSON object; - reads stdin.")
@_of_agent
@options.variables
@options.permissions
@options.no_input
@click.option("-v", "--verbose", is_flag=True, help="Print the output of the tool on stderr while it works.")
@options.config_dir
def call(**given: Any) -> int:
    """Run the tool NAME as an agent does, and print the result that a model would read on stdout.

    The same permissions apply: a tool that writes or executes asks at the terminal, unless --yes or --allow allows it.
    Exit code 1 if the tool failed, 2 if there is no such tool or the arguments do not fit.

    \b
    callboard tools call fs_ls --json '{"path": "."}'
    """
    from ..actions.tool_calls import call_tool

    return call_tool(**given)
