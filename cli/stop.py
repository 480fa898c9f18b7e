"""`callboard stop`: ends runs of a server, or actors in them."""

from __future__ import annotations

import click

from . import options


@click.command("stop", short_help="End runs of a server, or actors in them.")
@click.argument("targets", metavar="RUN|ACTOR...", nargs=-1, required=True, shell_complete=options.complete_run)
@options.text_or_json
@options.server
def command(targets: tuple[str, ...], as_json: bool, url: str | None, token: str | None) -> str:
    """Cancels each RUN (its id, or the beginning of it) and waits for its end; or the actor of this path (`callboard
    top` shows them) with all below it, and the run decides what becomes of that.

    What had ended before is told, and is no failure. Exit code 2 if there is no such run or actor.
    """
    from .control.commands.stopping import stop_targets
    from .control.servers import Where

    return stop_targets(Where(url=url, token=token), targets, as_json=as_json)
