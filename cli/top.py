"""`callboard top`: the actors of a server, live."""

from __future__ import annotations

import sys

import click

from . import options


@click.command("top", short_help="Watch the actors of a server, and steer them.")
@click.argument("run", required=False, shell_complete=options.complete_run)
@options.text_or_json
@options.server
def command(run: str | None, as_json: bool, url: str | None, token: str | None) -> int | str:
    """Shows all actors of a server, or those of RUN: where each is in the tree, its state and kind, the mail that waits
    for it, what it does and for how long, what it has used, its restarts, its events and the last of them.

    \b
    Keys: arrows or j k move, enter looks closer, c cancels (asks first), p pauses and resumes,
    a answers a question, / filters, s and S sort by another column, q quits.

    Where stdout is no terminal, and with -o json, it prints what is there now and ends.
    """
    from .control.servers import Where
    from .render.style import redrawable

    where = Where(url=url, token=token)
    if not as_json and sys.stdin.isatty() and redrawable(sys.stdout):
        from .control.top.app import watch

        return watch(where, run)
    from .control.top.snapshot import snapshot

    return snapshot(where, run, as_json=as_json)
