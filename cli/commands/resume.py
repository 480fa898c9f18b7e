"""`callboard resume`: resume durable runs whose process was killed."""

from __future__ import annotations

from pathlib import Path

import click

from ...protocol.repeats import OnUnknown
from .. import options


@click.command("resume", short_help="Continue a run whose process was killed.")
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=options.complete_interrupted)
@click.option("--all", "all_runs", is_flag=True, help="Resume all interrupted runs, the oldest first.")
@click.option(
    "--with-changes", is_flag=True, help="Use the present files of agents, not the files at the start of the run."
)
@click.option("--strict", is_flag=True, help="Refuse a run whose scripts or tool files have changed.")
@options.on_unknown
@options.prepared_answers
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
    answers: tuple[str, ...],
    answers_file: str | None,
    no_input: bool,
    output: str,
    quiet: bool,
    verbose: bool,
    config_dir: str | None,
) -> int:
    """Resume each durable RUN (its id, or the beginning of it) whose process was killed, and print its result as
    `callboard run` does. Without RUN, resume the only interrupted run. `callboard runs list --interrupted` lists them.

    Completed steps are not repeated. For a script that was under way at the kill, Callboard asks you; for a call, it
    informs the model; --on-unknown changes both. --answer and --answers apply to later questions, and replace the
    answers that the run began with.
    """
    options.check_loudness({"quiet": quiet, "verbose": verbose})
    if strict and with_changes:
        raise click.UsageError("--strict and --with-changes contradict each other.")
    if all_runs and runs:
        raise click.UsageError("--all and RUN contradict each other.")
    from ..actions.resume import ResumeFlags, resume_runs
    from ..flag_values import answers as prepared

    return resume_runs(
        runs,
        ResumeFlags(
            all_runs=all_runs,
            with_changes=with_changes,
            strict=strict,
            on_unknown=on_unknown,
            answers=prepared(answers, answers_file),
            no_input=no_input,
            output=output,
            quiet=quiet,
            verbose=verbose,
            config_dir=config_dir and str(Path(config_dir).absolute()),  # the run changes the directory
        ),
    )
