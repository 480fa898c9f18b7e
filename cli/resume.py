"""`callboard resume`: goes on with durable runs whose process was killed."""

from __future__ import annotations

import click

from ..protocol.repeats import OnUnknown
from . import options


@click.command("resume", short_help="Go on with a durable run whose process was killed.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=options.complete_interrupted)
@click.option("--all", "all_runs", is_flag=True, help="All that may go on, the oldest first.")
@click.option("--with-changes", is_flag=True, help="With the files of agents as they are today, not as they were.")
@click.option("--strict", is_flag=True, help="Refuse a run whose scripts or tool files have changed.")
@options.on_unknown
@options.no_input
@options.result_form
@options.loudness
@options.config_dir
def command(
    runs: tuple[str, ...],
    all_runs: bool,
    with_changes: bool,
    strict: bool,
    on_unknown: OnUnknown | None,
    no_input: bool,
    output: str,
    quiet: bool,
    verbose: bool,
    config_dir: str | None,
) -> int:
    """Goes on with each RUN (its id, or the beginning of it) where its process was killed, and prints its result as
    `callboard run` does. Without RUN, with the only one there is; callboard runs --interrupted lists them.

    What was done is not done again. A script that was under way is asked about; a model is told that its call was;
    --on-unknown has it otherwise.
    """
    options.check_loudness({"quiet": quiet, "verbose": verbose})
    if strict and with_changes:
        raise click.UsageError("--strict and --with-changes contradict each other.")
    if all_runs and runs:
        raise click.UsageError("--all and RUN contradict each other.")
    from .resuming import ResumeFlags, go_on

    return go_on(
        runs,
        ResumeFlags(
            all_runs=all_runs,
            with_changes=with_changes,
            strict=strict,
            on_unknown=on_unknown,
            no_input=no_input,
            output=output,
            quiet=quiet,
            verbose=verbose,
            config_dir=config_dir,
        ),
    )
