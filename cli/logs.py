"""`callboard logs`: what has happened in a run."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command("logs", short_help="Tell what has happened in a run.")
@click.argument("run", shell_complete=options.complete_run)
@click.option("-f", "--follow", is_flag=True, help="Goes on with what happens, until the run ends.")
@click.option(
    "--after", metavar="SEQ", type=click.IntRange(0), default=0, help="Begins after the event of this number."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    show_default=True,
    help="Form of what is printed on stdout: the story, or one event a line.",
)
@click.option("-v", "--verbose", is_flag=True, help="More of the story: model calls, tools, nested graphs, times.")
@options.server
def command(**given: Any) -> int:
    """Tells the story of RUN (its id, or the beginning of it) on stdout: from the state directory, for which no server
    is needed, or from the server at --url.

    Exit code 2 if there is no such run; with -f 3 if no server runs.
    """
    from .control.commands.following import Request, show_log

    return show_log(Request(**given))
