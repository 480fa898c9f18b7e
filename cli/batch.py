"""`callboard batch`: its flags. What they do is in `batching`."""

from __future__ import annotations

from typing import Any

import click

from . import options


@click.command("batch", short_help="Run an agent on every task of a file.")
@click.argument("target", shell_complete=options.complete_target)
@click.argument("tasks", type=click.Path())
@click.option(
    "--max-parallel",
    metavar="N",
    default="5",
    show_default=True,
    callback=options.above_zero("tasks", int),
    help="Tasks at once.",
)
@click.option(
    "--results",
    metavar="FILE",
    help="Where results are kept, a line of JSON each [default: TASKS with .results.jsonl for its suffix].",
)
@click.option(
    "--max-failures",
    metavar="N",
    callback=options.above_zero("tasks", int),
    help="Begins no more tasks once N have failed.",
)
@options.model
@options.variables
@options.prepared_answers
@options.permissions
@click.option("--save", metavar="DIR", help="Keeps every run as files in DIR/<run id>/, as `callboard run` does.")
@options.text_or_json
@options.compat
@options.limits
@options.strict
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr, only errors.")
@options.config_dir
def command(**given: Any) -> int:
    """Runs TARGET, an agent or a workflow, once for each row of TASKS: a .csv, .jsonl or .xlsx file.

    Its columns are id, task, attachments (a JSON list of files) and vars (a JSON object, as --var). A batch that was
    interrupted goes on when it is called again: what is done stays, what has failed is tried once more. Limits and
    answers are those of each run. It asks no questions.

    \b
    Exit codes: 0 all tasks are done, 1 some have failed, else those of `callboard run`: 3 means that a key or a
    setting is missing, so that every task would fail.
    """
    from .batching import BatchFlags, run_tasks
    from .flag_values import request

    return run_tasks(request(given), BatchFlags(**given))
