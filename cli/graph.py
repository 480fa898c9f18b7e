"""`callboard graph`: the picture of a graph."""

from __future__ import annotations

import sys

import click

from .options import complete_target, config_dir


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
@config_dir
def command(target: str, output: str, config_dir: str | None) -> int:
    """Prints the picture of TARGET: its nodes and every way between them."""
    from .. import GraphAgent, load
    from ..actors.graph import draw
    from ..protocol.errors import UsageError
    from .render.text import safe

    agent = load(target, config_dir=config_dir)
    if not isinstance(agent, GraphAgent):
        raise UsageError(f"{target} is not a graph: it has a config.yaml, and there is nothing to draw")
    sys.stdout.write(safe(draw.draw(agent.graph, output)))
    return 0
