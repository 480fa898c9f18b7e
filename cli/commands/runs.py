"""`callboard runs`: list, show, delete, export and import the records of runs in the state directory."""

from __future__ import annotations

import click

from .. import options

_STATUS = ("queued", "running", "waiting", "done", "failed", "cancelled", "interrupted", "lost")


@click.group("runs", cls=options.ListByDefault, short_help="List and delete the records of runs.")
def command() -> None:
    """List, show and delete the records of runs, and the changes that their file tools made. The state directory
    contains the runs at a terminal and the runs of servers; these commands need no server.

    Without a command: list.
    """


@command.command("list", short_help="List runs, the newest first.")
@click.option("--status", type=click.Choice(_STATUS), help="List only runs with this status.")
@click.option(
    "--interrupted", is_flag=True, help="List durable runs whose process was killed; callboard resume continues them."
)
@click.option(
    "--limit", metavar="N", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of runs."
)
@options.text_or_json
def list_all(status: str | None, interrupted: bool, limit: int, as_json: bool) -> str:
    """List past runs and runs under way: status, time, and usage. A run whose server was killed before its end is
    `lost`.
    """
    if interrupted:
        if status is not None:
            raise click.UsageError(
                "--status and --interrupted exclude each other: all these runs have the status interrupted."
            )
        from ..actions.durable import list_interrupted

        return list_interrupted(limit=limit, as_json=as_json)
    from ..control.commands.stored_runs import list_stored_runs

    return list_stored_runs(status=status, limit=limit, as_json=as_json)


@command.command("show", short_help="Show one run: status, usage, output.")
@click.argument("run", shell_complete=options.complete_run)
@click.option("--rows", is_flag=True, help="List the steps of a durable run, with the numbers for callboard fork --at.")
@options.text_or_json
def show(run: str, rows: bool, as_json: bool) -> str:
    """Show RUN (its id, the beginning of it, or `last`). For its log: callboard logs RUN."""
    if rows:
        from ..actions.durable import show_rows

        return show_rows(run, as_json=as_json)
    from ..control.commands.stored_runs import show_run

    return show_run(run, as_json=as_json)


@command.command("diff", short_help="Print the changes of a run to files as a diff.")
@click.argument("run", required=False, shell_complete=options.complete_run)
@options.text_or_json
def diff(run: str | None, as_json: bool) -> str:
    """Print the changes by the file tools (fs_write, fs_edit, fs_patch, fs_mkdir, fs_rm) of RUN as a diff; without RUN,
    of the last run that changed files. Changes by commands are not recorded.
    """
    from ..control.commands.changed import show_changes

    return show_changes(run, as_json=as_json)


@command.command("restore", short_help="Restore the files that a run has changed.")
@click.argument("run", shell_complete=options.complete_run)
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.no_input
@options.text_or_json
def restore(run: str, yes: bool, no_input: bool, as_json: bool) -> int:
    """Restore the files that the file tools of RUN have changed, after a question. Files that another program or a
    later run has changed since are left alone, and listed; the exit code is 1 then.
    """
    from ..control.commands.changed import restore_changes

    return restore_changes(run, yes=yes, no_input=no_input, as_json=as_json)


@command.command("delete", short_help="Delete the records of runs.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=options.complete_run)
@options.text_or_json
def delete(runs: tuple[str, ...], as_json: bool) -> str:
    """Delete the records of each RUN. If one of them is under way, delete nothing."""
    from ..control.commands.stored_runs import delete_runs

    return delete_runs(runs, as_json=as_json)


@command.command("rm", hidden=True, short_help="Alias of delete.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=options.complete_run)
@options.text_or_json
def rm(runs: tuple[str, ...], as_json: bool) -> str:
    """Delete the records of each RUN, as `delete` does."""
    from ..control.commands.stored_runs import delete_runs

    return delete_runs(runs, as_json=as_json)


@command.command("export", short_help="Write the journal of a durable run to a file.")
@click.argument("run", shell_complete=options.complete_run)
@click.argument("file", type=click.Path(dir_okay=False))
@options.text_or_json
def export(run: str, file: str, as_json: bool) -> str:
    """Write the journal of the durable RUN to FILE, for `callboard runs import` on another machine; the run also stays
    here. The file contains prompts, replies and results unencrypted.
    """
    from ..actions.durable import export_run

    return export_run(run, file, as_json=as_json)


@command.command("import", short_help="Import an exported durable run.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@options.text_or_json
def take_in(file: str, as_json: bool) -> str:
    """Import the durable run in FILE under its id. If it was not over, callboard resume continues it."""
    from ..actions.durable import import_run

    return import_run(file, as_json=as_json)


@command.command("prune", short_help="Delete the records of old runs.")
@click.option("--keep", metavar="N", type=click.IntRange(0), help="Delete all but the N newest completed runs.")
@click.option(
    "--older",
    metavar="DAYS",
    callback=options.above_zero("days", float),
    help="Delete runs that ended more than DAYS days ago.",
)
@options.text_or_json
def prune(keep: int | None, older: float | None, as_json: bool) -> str:
    """Delete the records of completed runs, by number or by age."""
    if keep is None and older is None:
        raise click.UsageError("Which runs? Give --keep N or --older DAYS.")
    from ..control.commands.stored_runs import prune_runs

    return prune_runs(keep=keep, older=older, as_json=as_json)
