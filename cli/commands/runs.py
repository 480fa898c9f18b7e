"""`callboard runs`: list, show, delete, export and import the records of runs in the state directory."""

from __future__ import annotations

import click

from .. import options

_STATUS = ("queued", "running", "waiting", "done", "failed", "cancelled", "interrupted", "lost")


@click.group("runs", cls=options.ListByDefault, short_help="List and delete the records of runs.")
def command() -> None:
    """The records of runs at a terminal, and of those that a server has played, lie in the state directory; these
    commands need no server. So with what the file tools of all runs have changed.

    Without a command: list.
    """


@command.command("list", short_help="List runs, the newest first.")
@click.option("--status", type=click.Choice(_STATUS), help="Only those that stand so.")
@click.option("--interrupted", is_flag=True, help="Durable runs whose process was killed: callboard resume goes on.")
@click.option("--limit", metavar="N", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@options.text_or_json
def list_all(status: str | None, interrupted: bool, limit: int, as_json: bool) -> str:
    """Lists past runs and those under way: how they ended, when, what they have used. One whose server was killed
    before it had an end is `lost`.
    """
    if interrupted:
        if status is not None:
            raise click.UsageError("--status is not for --interrupted: those have no other.")
        from ..actions.resume import list_interrupted

        return list_interrupted(limit=limit, as_json=as_json)
    from ..control.commands.stored_runs import list_stored_runs

    return list_stored_runs(status=status, limit=limit, as_json=as_json)


@command.command("show", short_help="Show one run: its figures, its end, its output.")
@click.argument("run", shell_complete=options.complete_run)
@click.option("--rows", is_flag=True, help="The steps of a durable run, by the numbers that callboard fork takes.")
@options.text_or_json
def show(run: str, rows: bool, as_json: bool) -> str:
    """Shows RUN (its id, the beginning of it, or `last`). What has happened in it: callboard logs RUN."""
    if rows:
        from ..actions.runs import show_rows

        return show_rows(run, as_json=as_json)
    from ..control.commands.stored_runs import show_run

    return show_run(run, as_json=as_json)


@command.command("diff", short_help="Show what a run has changed in files.")
@click.argument("run", required=False, shell_complete=options.complete_run)
@options.text_or_json
def diff(run: str | None, as_json: bool) -> str:
    """Shows as a diff what the file tools (fs_write, fs_edit, fs_patch, fs_mkdir, fs_rm) have changed in RUN; without
    one, in the last run that has changed files, of a server or not. What commands did to files is not known.
    """
    from ..control.commands.changed import show_changes

    return show_changes(run, as_json=as_json)


@command.command("restore", short_help="Put the files back that a run has changed.")
@click.argument("run", shell_complete=options.complete_run)
@click.option("--yes", is_flag=True, help="Don't ask.")
@options.no_input
@options.text_or_json
def restore(run: str, yes: bool, no_input: bool, as_json: bool) -> int:
    """Puts the files back that the file tools of RUN have changed, after a question. What another program or a later
    run has changed since is left as it is, and named; the exit code is 1 then.
    """
    from ..control.commands.changed import restore_changes

    return restore_changes(run, yes=yes, no_input=no_input, as_json=as_json)


@command.command("delete", short_help="Delete the records of runs.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=options.complete_run)
@options.text_or_json
def delete(runs: tuple[str, ...], as_json: bool) -> str:
    """Deletes the records of each RUN; of one that is under way nothing is deleted."""
    from ..control.commands.stored_runs import delete_runs

    return delete_runs(runs, as_json=as_json)


@command.command("rm", hidden=True, short_help="The same as delete.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=options.complete_run)
@options.text_or_json
def rm(runs: tuple[str, ...], as_json: bool) -> str:
    """As delete."""
    from ..control.commands.stored_runs import delete_runs

    return delete_runs(runs, as_json=as_json)


@command.command("export", short_help="Write what is kept of a durable run into a file.")
@click.argument("run", shell_complete=options.complete_run)
@click.argument("file", type=click.Path(dir_okay=False))
@options.text_or_json
def export(run: str, file: str, as_json: bool) -> str:
    """Writes what is kept of RUN into FILE, which callboard runs import takes on another machine; the run stays here.
    Prompts, replies and results stand there in clear.
    """
    from ..actions.runs import export_run

    return export_run(run, file, as_json=as_json)


@command.command("import", short_help="Take in a durable run that was exported.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@options.text_or_json
def take_in(file: str, as_json: bool) -> str:
    """Takes in the run in FILE under its id; if it was not over, callboard resume goes on with it."""
    from ..actions.runs import import_run

    return import_run(file, as_json=as_json)


@command.command("prune", short_help="Delete the records of old runs.")
@click.option("--keep", metavar="N", type=click.IntRange(0), help="All but the N newest that are over.")
@click.option("--older", metavar="DAYS", callback=options.above_zero("days", float), help="Those over for so long.")
@options.text_or_json
def prune(keep: int | None, older: float | None, as_json: bool) -> str:
    """Deletes the records of runs that are over, by number or by age."""
    if keep is None and older is None:
        raise click.UsageError("Which runs? Give --keep N or --older DAYS.")
    from ..control.commands.stored_runs import prune_runs

    return prune_runs(keep=keep, older=older, as_json=as_json)
