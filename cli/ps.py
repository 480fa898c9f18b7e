"""`callboard ps`: the runs of a server, and of other programs of this user."""

from __future__ import annotations

import click

from . import options


@click.command("ps", short_help="List the runs that are under way.")
@click.option("-a", "--all", "past", is_flag=True, help="Past runs, too; the newest first.")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=50, show_default=True, help="With -a: how many.")
@options.text_or_json
@options.server
def command(past: bool, limit: int, as_json: bool, url: str | None, token: str | None) -> str:
    """Lists the runs under way of the newest `callboard serve` of this user, or of the server at --url: since when, how
    many questions are open, what each has used, and what it does right now. Runs of `callboard run` and `ask` at other
    terminals are listed, too, with their process; they are watched and stopped there.

    Exit code 3 if there is neither a server nor such a run, 6 if the server does not answer.
    """
    from .control.commands.listing import list_runs
    from .control.servers import Where

    return list_runs(Where(url=url, token=token), past=past, limit=limit, as_json=as_json)
