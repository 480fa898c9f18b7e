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
    help="An agent, whose own tools are meant as well.",
)


@click.group("tools", cls=options.ListByDefault, short_help="List, show and try tools.")
def command() -> None:
    """Tools that agents may call: yours, in functions/tools of the config directory, and the built-in ones.

    Without a command: list.
    """


@command.command("list", short_help="List the tools.")
@_of_agent
@options.output_and_config
def list_all(agent: str | None, as_json: bool, config_dir: str | None) -> int:
    """Lists all tools, with what they do; with --agent, its own ones first."""
    from ..actions.tools import list_tools

    text, broken = list_tools(agent, config_dir, as_json=as_json)
    sys.stdout.write(text)
    return 2 if broken else 0


@command.command("show", short_help="Show a tool as models see it.")
@click.argument("name")
@_of_agent
@options.output_and_config
def show(name: str, agent: str | None, as_json: bool, config_dir: str | None) -> str:
    """Shows what a tool is for, what it does to the world, where it comes from, and the schema of its arguments."""
    from ..actions.tools import show_tool

    return show_tool(name, agent, config_dir, as_json=as_json)


@command.command("call", short_help="Run a tool by hand.")
@click.argument("name")
@click.option("--json", "arguments", metavar="ARGS", default="{}", help="The arguments, a JSON object; - reads stdin.")
@_of_agent
@options.variables
@options.permissions
@options.no_input
@click.option("-v", "--verbose", is_flag=True, help="Tell on stderr what the tool prints while it works.")
@options.config_dir
def call(**given: Any) -> int:
    """Runs the tool NAME as a model would, and prints on stdout what the model would read.

    The same permissions hold: what writes or executes asks at the terminal, unless --yes or --allow says otherwise.
    Exit code 1 if the tool failed, 2 if there is no such tool or the arguments don't fit.

    \b
    callboard tools call fs_ls --json '{"path": "."}'
    """
    from ..actions.tool_calls import call_tool

    return call_tool(**given)
