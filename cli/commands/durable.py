"""`callboard resume`, `fork` and `replay`: commands that execute a durable run from its journal."""

from __future__ import annotations

from pathlib import Path

import click

from ...protocol.interrupted_calls import OnUnknown
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
def resume(
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
    from ..actions.durable import ResumeFlags, resume_runs
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


@click.command("fork", short_help="Start another run from a step of a durable one.")
@click.argument("run", shell_complete=options.complete_durable)
@click.option(
    "--at",
    metavar="PLACE",
    required=True,
    help="Step at which the fork begins: a number, a node and its visit (plan#2), or the id of a question; "
    "callboard runs show RUN --rows lists them.",
)
@options.model
@click.option(
    "--prompt",
    metavar="TEXT",
    help="Replace the prompt if nothing was done before PLACE; else set a graph's initial_prompt, or send "
    "TEXT as the next message.",
)
@click.option("--set", "state", metavar="KEY=JSON", multiple=True, help="Set a key of the graph's state; repeatable.")
@click.option(
    "--answer",
    "answers",
    metavar="QUESTION=TEXT",
    multiple=True,
    help="Answer a question that was open at PLACE, by its id or by the node that asked; repeatable.",
)
@click.option("--with-changes", is_flag=True, help="Use the present file of the run, not the file at its start.")
@click.option("--yes", is_flag=True, help="Repeat changes that the run made after PLACE without asking.")
@options.no_input
@options.result_form
@options.loudness
@options.config_dir
def fork(
    run: str,
    at: str,
    model: str | None,
    prompt: str | None,
    state: tuple[str, ...],
    answers: tuple[str, ...],
    with_changes: bool,
    yes: bool,
    no_input: bool,
    output: str,
    quiet: bool,
    verbose: bool,
    config_dir: str | None,
) -> int:
    """Start a new run with the steps of the durable RUN (its id, or the beginning of it) up to PLACE, continue from
    there, and print the result as `callboard run` does. RUN does not change; it may be over, interrupted, or under way.

    If RUN changed files or called tools after PLACE, the new run repeats that; Callboard asks first.

    \b
    callboard fork 7f3a --at plan#2 --set 'topic="cats"'
    callboard fork 7f3a --at q-7f3a01bc-1 --answer q-7f3a01bc-1=no
    """
    options.check_loudness({"quiet": quiet, "verbose": verbose})
    from ..actions.durable import ForkFlags, fork_run
    from ..flag_values import pairs
    from ..flag_values import state as values

    return fork_run(
        run,
        at,
        ForkFlags(
            model=model,
            prompt=prompt,
            state=values(state),
            answers=pairs(answers, "--answer", "QUESTION=TEXT"),
            with_changes=with_changes,
            yes=yes,
            no_input=no_input,
            output=output,
            quiet=quiet,
            verbose=verbose,
            config_dir=config_dir and str(Path(config_dir).absolute()),  # the run changes the directory
        ),
    )


@click.command("replay", short_help="Repeat a durable run from its journal, without models and tools.")
@click.argument("run", shell_complete=options.complete_durable)
@click.option("--with-changes", is_flag=True, help="Use the present file of the run, to test a change.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "events"]),
    default="text",
    show_default=True,
    help="Form of the result on stdout; events: every event as a line of JSON.",
)
@options.config_dir
def replay(run: str, with_changes: bool, output: str, config_dir: str | None) -> int:
    """Repeat the durable RUN (its id, or the beginning of it) from its journal. Replies of models, results of tools and
    scripts, and answers of users are read from the journal: nothing is sent, no process is started, and nothing is
    written.

    Print the output or the events of the run. If the present files or this version of Callboard lead to different
    results, list the steps that differ on stderr (callboard runs show RUN --rows has their numbers); the exit code is 1
    then.
    """
    from ..actions.durable import replay_run

    return replay_run(run, with_changes=with_changes, output=output, config_dir=config_dir)
