"""What `callboard replay` does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..actors.io.directories import config_dir as configured
from ..actors.io.directories import journal_dir
from ..actors.runs.rerun.fork import steps_of
from ..actors.runs.rerun.replay import Replayed, replay
from . import logging
from .forking import durable_run
from .render.result import for_format
from .render.text import safe, with_node

_FORMATS = {"text": "text", "json": "json", "events": "stream-json"}


def play(word: str, *, with_changes: bool, output: str, config_dir: str | None) -> int:
    """Plays it; returns the exit code of the run, or 1 if it has come to something else.

    Raises:
        CallboardError: there is no such run, or it can't be replayed.
    """
    logging.configure()
    run, about = durable_run(word)
    config_dir = config_dir or (None if about is None else about.config_dir)
    result = for_format(_FORMATS[output], sys.stdout)
    replayed = replay(run, on_event=result.on_event, config_dir=config_dir, with_changes=with_changes)
    result.finish(replayed.outcome)
    _tell(run, replayed, Path(configured(config_dir, os.environ)[0]))
    return 1 if replayed.differences else 0 if replayed.ended_early else replayed.outcome.exit_code


def _tell(run: str, replayed: Replayed, config_dir: Path) -> None:
    outcome = replayed.outcome
    if outcome.error is not None and not replayed.ended_early:
        sys.stderr.write(f"callboard: {safe(with_node(outcome.error.message, outcome.error.node))}\n")
    if replayed.ended_early:
        sys.stderr.write(f"{run} was not over: its rows have an end here\n")
    if not replayed.differences:
        return
    where = {step.row: step.where for step in steps_of(journal_dir(os.environ), run, config_dir)}
    for each in replayed.differences:
        row = f"row {each.row}" if each.row else "no row"
        at = where.get(each.row) or each.path
        sys.stderr.write(f"{row}{f' ({safe(at)})' if at else ''}: {safe(each.what)}\n")
