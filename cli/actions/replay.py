"""Replay of a durable run from its journal for `callboard replay`, with the differences on stderr."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ...actors.io.directories import config_dir as configured
from ...actors.io.directories import journal_dir
from ...actors.runs.rerun.fork import steps_of
from ...actors.runs.rerun.replay import Replayed, replay
from .. import logging
from ..failure import complain
from ..render.result import for_format
from ..render.text import safe, with_node
from .fork import find_durable_run

_FORMATS = {"text": "text", "json": "json", "events": "stream-json"}


def replay_run(word: str, *, with_changes: bool, output: str, config_dir: str | None) -> int:
    """Replay a run; return its exit code, or 1 if the replay differs from the journal.

    Raises:
        CallboardError: there is no such run, or it can't be replayed.
    """
    logging.configure()
    run, about = find_durable_run(word)
    config_dir = config_dir or (None if about is None else about.config_dir)
    result = for_format(_FORMATS[output], sys.stdout)
    replayed = replay(run, on_event=result.on_event, config_dir=config_dir, with_changes=with_changes)
    result.finish(replayed.outcome)
    _print_differences(run, replayed, Path(configured(config_dir, os.environ)[0]))
    # A run that was not over has no exit code of its own: the outcome only says where its rows end.
    return 1 if replayed.differences else 0 if replayed.ended_early else replayed.outcome.exit_code


def _print_differences(run: str, replayed: Replayed, config_dir: Path) -> None:
    outcome = replayed.outcome
    if outcome.error is not None and not replayed.ended_early:
        complain(with_node(outcome.error.message, outcome.error.node))
    if replayed.ended_early:
        sys.stderr.write(f"{run} was not over: its journal ends here\n")
    if not replayed.differences:
        return
    where = {step.row: step.where for step in steps_of(journal_dir(os.environ), run, config_dir)}
    for each in replayed.differences:
        row = f"row {each.row}" if each.row else "no row"
        at = where.get(each.row) or each.path
        sys.stderr.write(f"{row}{f' ({safe(at)})' if at else ''}: {safe(each.what)}\n")
