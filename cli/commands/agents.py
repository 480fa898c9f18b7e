"""`callboard agents`: list agents, show one, and make a new one."""

from __future__ import annotations

import sys

import click

from ..options import ListByDefault, complete_agent, complete_target, config_dir, output_and_config


@click.group("agents", cls=ListByDefault, short_help="List, show and make agents.")
def command() -> None:
    """List, show and make agents: your own, in the config directory, and the built-in ones. Without a command: list.

    To change a built-in agent, copy its directory: cp -r "$(callboard agents path demo)" "$(callboard agents path)/"
    """


@command.command("list", short_help="List your agents and the built-in ones.")
@output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """List your agents and the built-in ones, each with its kind, its description, and its model."""
    from ..actions.agents import list_agents

    return list_agents(config_dir, as_json=as_json)


@command.command("show", short_help="Show an agent: files, variables, tools, problems.")
@click.argument("target", metavar="NAME", shell_complete=complete_target)
@output_and_config
def show(target: str, as_json: bool, config_dir: str | None) -> int:
    """Show the description of an agent, its file, variables, tools, suggested prompts, and problems.

    NAME can also be a directory or a file. Exit code 2 if the agent has an error.
    """
    from ..actions.agents import show_agent
    from ..render.text import json_object

    shown = show_agent(target, config_dir)
    sys.stdout.write(json_object(**shown.to_wire()) if as_json else shown.as_text())
    return 2 if shown.errors else 0


@command.command("new", short_help="Make an agent in the config directory.")
@click.argument("name")
@click.option("--graph", is_flag=True, help="Make a graph instead of an LLM agent.")
@click.option(
    "--template",
    metavar="NAME",
    help="Make a graph from this template of `callboard init`; implies --graph [default: hello].",
)
@config_dir
def new(name: str, graph: bool, template: str | None, config_dir: str | None) -> str:
    """Make the agent NAME in the config directory: a config.yaml with comments, and a working tool.

    Existing files are never overwritten.
    """
    from ..actions.agents import make_agent, make_graph

    return make_graph(name, template or "hello", config_dir) if graph or template else make_agent(name, config_dir)


@command.command("path", short_help="Print the directory of agents.")
@click.argument("name", required=False, shell_complete=complete_agent)
@config_dir
def path(name: str | None, config_dir: str | None) -> str:
    """Print the directory of an agent; without NAME, the directory of your agents."""
    from ..actions.agents import path_of

    return path_of(name, config_dir) + "\n"
