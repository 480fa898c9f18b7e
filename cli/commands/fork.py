"""`callboard fork`: start another run from a step of a durable one."""

from __future__ import annotations

import click

from .. import options


@click.command("fork", short_help="Start another run from a step of a durable one.")
@click.argument("run", shell_complete=options.complete_durable)
@click.option(
    "--at",
    metavar="PLACE",
    required=True,
    help="Where: the number of a row, a node and its visit (plan#2), or the id of a question; callboard runs show RUN"
    " --rows lists them.",
)
@options.model
@click.option("--prompt", metavar="TEXT", help="Other words: in place of the prompt, or said from there on.")
@click.option("--set", "state", metavar="KEY=JSON", multiple=True, help="Sets a key of the graph's state; repeatable.")
@click.option(
    "--answer",
    "answers",
    metavar="QUESTION=TEXT",
    multiple=True,
    help="Answers a question that was open there: by its id, or by the node that asked; repeatable.",
)
@click.option("--with-changes", is_flag=True, help="With the run's file as it is today, not as it was when it began.")
@click.option("--yes", is_flag=True, help="Don't ask whether what the run did behind that place may be done again.")
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
    """Begins a new run with what the durable RUN (its id, or the beginning of it) had done until PLACE, goes on from
    there, and prints the result as `callboard run` does. RUN stays as it is; it may be over, interrupted, or under way.

    What RUN did to the world behind PLACE is done again: that is asked about first.

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
            config_dir=config_dir,
        ),
    )
