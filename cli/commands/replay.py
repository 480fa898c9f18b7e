"""`callboard replay`: run a durable run again from its journal, without models and tools."""

from __future__ import annotations

import click

from .. import options


@click.command("replay", short_help="Run a durable run again, without models and tools.")
@click.argument("run", shell_complete=options.complete_durable)
@click.option("--with-changes", is_flag=True, help="With the run's file as it is today, to see what it would come to.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "events"]),
    default="text",
    show_default=True,
    help="Form of the result on stdout; events: every event as a line of JSON.",
)
@options.config_dir
def command(run: str, with_changes: bool, output: str, config_dir: str | None) -> int:
    """Plays the durable RUN (its id, or the beginning of it) once more: what its models, tools, scripts and people said
    is taken from what is kept of it. Nothing is sent, no process is started, and nothing is written.

    Output and events are those of the run. Where today's files, or today's callboard, come to something else than the
    run did, that is listed on stderr by its row (callboard runs show RUN --rows), and the exit code is 1.
    """
    from ..actions.replay import replay_run

    return replay_run(run, with_changes=with_changes, output=output, config_dir=config_dir)
