"""`callboard replay`: run a durable run again from its journal, without models and tools."""

from __future__ import annotations

import click

from .. import options


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
def command(run: str, with_changes: bool, output: str, config_dir: str | None) -> int:
    """Repeat the durable RUN (its id, or the beginning of it) from its journal. Replies of models, results of tools and
    scripts, and answers of users are read from the journal: nothing is sent, no process is started, and nothing is
    written.

    Print the output or the events of the run. If the present files or this version of Callboard lead to different
    results, list the steps that differ on stderr (callboard runs show RUN --rows has their numbers); the exit code is 1
    then.
    """
    from ..actions.replay import replay_run

    return replay_run(run, with_changes=with_changes, output=output, config_dir=config_dir)
