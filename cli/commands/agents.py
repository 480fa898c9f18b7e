"""`callboard agents`: list agents, show one, and make a new one."""

from __future__ import annotations

import sys

import click

from ..options import ListByDefault, complete_agent, complete_target, config_dir, output_and_config


@click.group("agents", cls=ListByDefault, short_help="List, show and make agents.")
def command() -> None:
    """Agents by name: yours, in the config directory, and the built-in ones. Without a command: list.

    To change a built-in agent, copy its directory:
    cp -r "$(callboard agents path demo)" "$(callboard agents path)/"
    """


@command.command("list", short_help="List the agents that can be named.")
@output_and_config
def list_all(as_json: bool, config_dir: str | None) -> str:
    """Lists your agents and the built-in ones, each with its kind, what it is for, and the model it names."""
    from ..actions.agents import list_agents

    return list_agents(config_dir, as_json=as_json)


@command.command("show", short_help="Show all about an agent.")
@click.argument("target", metavar="NAME", shell_complete=complete_target)
@output_and_config
def show(target: str, as_json: bool, config_dir: str | None) -> int:
    """Shows what an agent is for, its file, variables, tools, prompts to begin with, and problems.

    NAME may be a directory or file as well. Exit code 2 if a problem keeps it from being run.
    """
    from ..actions.agents import show_agent
    from ..render.text import json_object

    shown = show_agent(target, config_dir)
    sys.stdout.write(json_object(**shown.to_wire()) if as_json else shown.as_text())
    return 2 if shown.errors else 0


@command.command("new", short_help="Make an agent of your own.")
@click.argument("name")
@click.option("--graph", is_flag=True, help="A graph instead of an agent that works out its own steps.")
@click.option(
    "--template",
    metavar="NAME",
    help="Which graph, of the templates of `callboard init`; implies --graph [default: hello].",
)
@config_dir
def new(name: str, graph: bool, template: str | None, config_dir: str | None) -> str:
    """Makes the agent NAME in the config directory: a config.yaml that explains itself, and a tool that works.

    Files that are there already are never overwritten.
    """
    from ..actions.agents import make_agent, make_graph

    return make_graph(name, template or "hello", config_dir) if graph or template else make_agent(name, config_dir)


@command.command("path", short_help="Print where agents live.")
@click.argument("name", required=False, shell_complete=complete_agent)
@config_dir
def path(name: str | None, config_dir: str | None) -> str:
    """Prints the directory of an agent; without NAME, the one in which your agents live."""
    from ..actions.agents import path_of

    return path_of(name, config_dir) + "\n"
