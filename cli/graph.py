"""`callboard graph`: the picture of a graph."""

from __future__ import annotations

import sys

import click

from . import given
from .options import complete_target, config_dir, variables


@click.command("graph", short_help="Draw a graph.")
@click.argument("target", shell_complete=complete_target)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["mermaid", "dot", "svg", "ascii"]),
    default="mermaid",
    show_default=True,
    help="mermaid shows in Markdown, dot is for Graphviz, svg is a picture, ascii fits a terminal.",
)
@variables
@config_dir
def command(target: str, output: str, variables: tuple[str, ...], config_dir: str | None) -> int:
    """Prints the picture of TARGET: its nodes and every way between them."""
    from .. import LoopAgent, load
    from ..actors.engine.graph import draw
    from ..protocol.errors import UsageError
    from .render.text import safe

    agent = load(target, variables=given.variables(variables), config_dir=config_dir)
    if isinstance(agent, LoopAgent):
        raise UsageError(f"{target} is not a graph: it has a config.yaml, and there is nothing to draw")
    sys.stdout.write(safe(draw.draw(agent.picture, output)))
    return 0
