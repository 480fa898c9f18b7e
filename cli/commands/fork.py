"""`callboard fork`: start another run from a step of a durable one."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options


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
def command(
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
    from ..actions.fork import ForkFlags, fork_run
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
