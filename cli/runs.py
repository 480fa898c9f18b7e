"""`callboard runs`: what runs have left in the state directory."""

from __future__ import annotations

import click

from . import options

_STATUS = ("running", "waiting", "done", "failed", "cancelled", "lost")


@click.group("runs", cls=options.ListByDefault, short_help="List and delete the records of runs.")
def command() -> None:
    """The records of runs that a server has played lie in the state directory; these commands need no server.

    Without a command: list.
    """


@command.command("list", short_help="List runs, the newest first.")
@click.option("--status", type=click.Choice(_STATUS), help="Only those that stand so.")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@options.text_or_json
def list_all(status: str | None, limit: int, as_json: bool) -> str:
    """Lists past runs and those under way: how they ended, when, what they have used. One whose server was killed
    before it had an end is `lost`.
    """
    from .control.commands.kept import list_kept

    return list_kept(status=status, limit=limit, as_json=as_json)


@command.command("show", short_help="Show one run: its figures, its end, its output.")
@click.argument("run", shell_complete=options.complete_run)
@options.text_or_json
def show(run: str, as_json: bool) -> str:
    """Shows RUN (its id, or the beginning of it). What has happened in it: callboard logs RUN."""
    from .control.commands.kept import show_kept

    return show_kept(run, as_json=as_json)


@command.command("delete", short_help="Delete the records of runs.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=options.complete_run)
@options.text_or_json
def delete(runs: tuple[str, ...], as_json: bool) -> str:
    """Deletes the records of each RUN; of one that is under way nothing is deleted."""
    from .control.commands.kept import delete_kept

    return delete_kept(runs, as_json=as_json)


@command.command("prune", short_help="Delete the records of old runs.")
@click.option("--keep", metavar="N", type=click.IntRange(0), help="All but the N newest that are over.")
@click.option("--older", metavar="DAYS", callback=options.above_zero("days", float), help="Those over for so long.")
@options.text_or_json
def prune(keep: int | None, older: float | None, as_json: bool) -> str:
    """Deletes the records of runs that are over, by number or by age."""
    if keep is None and older is None:
        raise click.UsageError("Which runs? Give --keep N or --older DAYS.")
    from .control.commands.kept import prune_kept

    return prune_kept(keep=keep, older=older, as_json=as_json)
