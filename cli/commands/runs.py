"""`callboard runs`, `show` and `usage`: records of runs, their requests to models, and their cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import options

if TYPE_CHECKING:
    from ...protocol.control.resources import UsageGroup


_STATUS = ("queued", "running", "waiting", "done", "failed", "cancelled", "interrupted", "lost")


@click.group("runs", cls=options.ListByDefault, short_help="List and delete the records of runs.")
def runs() -> None:
    """List, show and delete the records of runs, and the changes that their file tools made. The state directory
    contains the runs at a terminal and the runs of servers; these commands need no server.

    Without a command: list.
    """


@runs.command("list", short_help="List runs, the newest first.")
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


@runs.command("show", short_help="Show one run: status, usage, output.")
@click.argument("run", shell_complete=options.complete_run)
@click.option("--rows", is_flag=True, help="List the steps of a durable run, with the numbers for callboard fork --at.")
@options.text_or_json
def show_one(run: str, rows: bool, as_json: bool) -> str:
    """Show RUN (its id, the beginning of it, or `last`). For its log: callboard logs RUN."""
    if rows:
        from ..actions.durable import show_rows

        return show_rows(run, as_json=as_json)
    from ..control.commands.stored_runs import show_run

    return show_run(run, as_json=as_json)


@runs.command("diff", short_help="Print the changes of a run to files as a diff.")
@click.argument("run", required=False, shell_complete=options.complete_run)
@options.text_or_json
def diff(run: str | None, as_json: bool) -> str:
    """Print the changes by the file tools (fs_write, fs_edit, fs_patch, fs_mkdir, fs_rm) of RUN as a diff; without RUN,
    of the last run that changed files. Changes by commands are not recorded.
    """
    from ..control.commands.changed import show_changes

    return show_changes(run, as_json=as_json)


@runs.command("restore", short_help="Restore the files that a run has changed.")
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


@runs.command("delete", short_help="Delete the records of runs.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=options.complete_run)
@options.text_or_json
def delete(runs: tuple[str, ...], as_json: bool) -> str:
    """Delete the records of each RUN. If one of them is under way, delete nothing."""
    from ..control.commands.stored_runs import delete_runs

    return delete_runs(runs, as_json=as_json)


@runs.command("rm", hidden=True, short_help="Alias of delete.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=options.complete_run)
@options.text_or_json
def rm(runs: tuple[str, ...], as_json: bool) -> str:
    """Delete the records of each RUN, as `delete` does."""
    from ..control.commands.stored_runs import delete_runs

    return delete_runs(runs, as_json=as_json)


@runs.command("export", short_help="Write the journal of a durable run to a file.")
@click.argument("run", shell_complete=options.complete_run)
@click.argument("file", type=click.Path(dir_okay=False))
@options.text_or_json
def export(run: str, file: str, as_json: bool) -> str:
    """Write the journal of the durable RUN to FILE, for `callboard runs import` on another machine; the run also stays
    here. The file contains prompts, replies and results unencrypted.
    """
    from ..actions.durable import export_run

    return export_run(run, file, as_json=as_json)


@runs.command("import", short_help="Import an exported durable run.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@options.text_or_json
def take_in(file: str, as_json: bool) -> str:
    """Import the durable run in FILE under its id. If it was not over, callboard resume continues it."""
    from ..actions.durable import import_run

    return import_run(file, as_json=as_json)


@runs.command("prune", short_help="Delete the records of old runs.")
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


@click.command("show", short_help="Show the requests and replies of models in a run.")
@click.argument("run", shell_complete=options.complete_run)
@click.argument("call", metavar="[NODE|ACTOR|N]", required=False)
@click.option("--request", "part", flag_value="request", help="Show only the request.")
@click.option("--reply", "part", flag_value="reply", help="Show only the reply.")
@click.option("--raw", is_flag=True, help="Print only the body of the request, as it was sent to the provider.")
@click.option("--all", "all_calls", is_flag=True, help="Show all matching requests, not only the last one.")
@options.text_or_json
def show(run: str, call: str | None, part: str | None, raw: bool, all_calls: bool, as_json: bool) -> str:
    """List the stored requests of RUN (its id, the beginning of it, or `last`) to models. With a number, `last`, or the
    name of a node or of an agent (or the path of an actor), show that request as the model received it: system prompt,
    messages, tools and parameters; and the reply. If a node made several requests, show the last one.

    Requests are stored for runs at a terminal, and with `keep_requests: true` in config.yaml. No server is needed.

    \b
    callboard show last                  # the list of requests
    callboard show last last             # the last request, and its reply
    callboard show 7f3a plan --request   # the request of node plan
    """
    from ..control.commands.calls import list_calls, show_calls

    if raw and (part is not None or as_json):
        raise click.UsageError("--raw prints only the body: give no --request, --reply or -o")
    if call is None and part is None and not raw and not all_calls:
        return list_calls(run, as_json=as_json)
    return show_calls(run, call, part="raw" if raw else part, all_calls=all_calls, as_json=as_json)


GROUPS = ("day", "model", "agent", "key")
"""Keys by which sums are grouped; also the names of their columns."""


@click.command("usage", short_help="Show the cost of models, by day, model, agent or key.")
@click.option(
    "--by",
    "groups",
    type=click.Choice(GROUPS),
    multiple=True,
    default=("day", "model"),
    show_default="day, model",
    help="Group the sums by this; repeatable.",
)
@click.option(
    "--days",
    metavar="N",
    type=click.IntRange(1, 36_500),
    default=30,
    show_default=True,
    help="Include the last N days.",
)
@click.option("--url", metavar="URL", help="Ask this server; a gateway includes the usage of its whole cluster.")
@click.option("--token", metavar="TOKEN", envvar="CALLBOARD_TOKEN", help="With --url: token for the server.")
@options.output_and_config
def usage(
    groups: tuple[UsageGroup, ...],
    days: int,
    url: str | None,
    token: str | None,
    as_json: bool,
    config_dir: str | None,
) -> str:
    """Show requests, tokens and USD of this user's runs, servers and sessions. Days are UTC days. The key is that of
    the caller who started a run, and `local` for commands of this machine. Runs of Python programs are not included. If
    the settings limit the spending of a day, show how much of the limit is used.
    """
    from ..control.commands.usage import show_usage, usage_at
    from ..control.servers import Where

    # A group that is given twice would be two columns.
    by = tuple(dict.fromkeys(groups))
    if url is not None:
        return usage_at(Where(url=url, token=token), by, days=days, as_json=as_json)
    return show_usage(by, days=days, as_json=as_json, config_dir=config_dir)
