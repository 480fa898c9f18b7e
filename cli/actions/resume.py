"""Interrupted durable runs: resuming one or all for `callboard resume`, and the list for `callboard runs list`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ...actors.front.control.logs.files import last_event
from ...actors.io.lines import from_any_thread
from ...actors.runs.durable import InterruptedRun, interrupted, resume
from ...actors.runs.loading import RunCallbacks
from ...actors.runs.root import Root
from ...protocol.errors import CallboardError, NotFound, UsageError
from ...protocol.events import Event, RunStarted
from ...protocol.journal import BATCH
from ...protocol.kernel.errors import Damaged
from ...protocol.outcome import Outcome
from ...protocol.relative_time import age
from ...protocol.repeats import OnUnknown
from .. import logging
from ..control.client import matching_id
from ..control.commands.stored_runs import runs_dir
from ..frame import choose_display, keeping, person_at_terminal, play
from ..render.answer import AnswerDisplay, AnswerResult, style_of
from ..render.progress import ProgressDisplay
from ..render.result import ResultFormat, for_format
from ..render.text import json_object, one_line, safe, table
from .durable_run import DurableRunFlags, enter_working_directory
from .run import WAIT, finish, seen_by_ps

_WIDE = 120
"""Width in columns from which the terminal shows all columns of the table."""

_HEAD_NARROW = ("RUN", "TARGET", "BEGAN", "BY", "PROMPT")
_HEAD = ("RUN", "TARGET", "BEGAN", "ROWS", "LIVES", "BY", "PROMPT")

_LOST = "Restore the file from a backup, or move it away; without it, its runs can't be continued"
"""Advice for a journal that can't be read."""

_SIGNALLED = 128
"""Exit codes above this mean that a signal ended the process."""


@dataclass(frozen=True, kw_only=True)
class ResumeFlags(DurableRunFlags):
    """Flags of `callboard resume`, as click parsed them."""

    all_runs: bool
    with_changes: bool
    strict: bool
    on_unknown: OnUnknown | None
    answers: list[Any] | dict[str, Any] | None


def list_interrupted(*, limit: int, as_json: bool) -> str:
    """Return the output of `runs --interrupted`."""
    runs = interrupted(os.environ)[::-1][:limit]
    if as_json:
        return json_object(runs=[_wire(run) for run in runs])
    if not runs:
        return "no durable run was interrupted\n"
    if sys.stdout.isatty() and shutil.get_terminal_size().columns < _WIDE:
        return table([_HEAD_NARROW, *map(_narrow_row, runs)])
    return table([_HEAD, *map(_row, runs)])


def resume_runs(words: Sequence[str], flags: ResumeFlags) -> int:
    """Resume the requested runs one after another; return the exit code of the first that did not complete.

    Raises:
        CallboardError: no run matches, or the only one can't be resumed.
    """
    runs = _chosen(words, flags)
    codes = []
    for run in runs:
        try:
            codes.append(_play(run, flags))
        except CallboardError as error:
            if len(runs) == 1:
                raise
            sys.stderr.write(f"callboard: {safe(str(error))}\n")
            codes.append(error.exit_code)
        if codes[-1] >= _SIGNALLED:
            break  # the user wants to stop, not to resume the next run
    return next((code for code in codes if code), 0)


def _chosen(words: Sequence[str], flags: ResumeFlags) -> list[InterruptedRun]:
    everything = interrupted(os.environ)
    # A journal that can't be read is an entry without an id.
    by_id = {run.run: run for run in everything if run.run}
    unread = [run.damage for run in everything if not run.run]
    if words:
        return [by_id[_id_of(word, by_id, unread)] for word in words]
    for damage in unread:
        sys.stderr.write(f"callboard: {safe(damage)}. {_LOST}\n")
    # A task of a batch is resumed by repeating `callboard batch`, which also stores its result.
    there = [run for run in everything if not run.why_not and (run.about is None or run.about.by != BATCH)]
    if flags.all_runs:
        return there
    if unread and not there:
        raise Damaged(f"no run can be continued: {unread[0]}")
    if not there:
        raise NotFound("no run was interrupted: there is nothing to continue")
    if len(there) > 1:
        named = ", ".join(run.run for run in there[-5:])
        raise UsageError(f"{len(there)} runs were interrupted: name one ({named}), or give --all")
    return there


def _id_of(word: str, there: dict[str, InterruptedRun], unread: Sequence[str]) -> str:
    id = matching_id(word, there)
    if id is None and unread:
        raise Damaged(f"'{word}' is not in a readable journal. {'; '.join(unread)}. {_LOST}")
    if id is None:
        raise NotFound(
            f"no durable run '{word}' was interrupted; to list interrupted runs: callboard runs --interrupted"
        )
    return id


def _play(run: InterruptedRun, flags: ResumeFlags) -> int:
    logging.configure()
    person = person_at_terminal(no_input=flags.no_input)
    shared = flags.output == "stream-json" and sys.stdout.isatty()
    progress = choose_display(sys.stderr, quiet=flags.quiet, verbose=flags.verbose, prompting=person, shared=shared)
    if flags.output == "text" and sys.stdout.isatty():
        progress = answer = AnswerDisplay(progress, sys.stdout, streams=True)
        result: ResultFormat = AnswerResult(sys.stdout, answer)
    else:
        result = for_format(flags.output, sys.stdout)
    config_dir = flags.config_dir or (None if run.about is None else run.about.config_dir)
    enter_working_directory(run.run, run.about)
    driver = partial(_drive, run, flags, progress, result)
    outcome = play(driver, progress, config_dir=config_dir, person=person)
    return finish(outcome, result)


async def _drive(
    run: InterruptedRun, flags: ResumeFlags, progress: ProgressDisplay, result: ResultFormat, root: Root
) -> Outcome:
    if isinstance(progress, AnswerDisplay):
        progress.begin(style_of(root.settings.other, Path(root.config_dir), sys.stdout, os.environ))
    result.on_write_error(from_any_thread(root.begin_stop))

    def on_event(event: Event) -> None:
        progress.on_event(event)
        if isinstance(event.data, RunStarted):
            here.enter_context(seen_by_ps(event))
        result.on_event(event)

    progress.note(f"{run.run} continues after {run.rows} recorded steps")
    log = runs_dir() / run.run
    wanted = root.settings.keep_requests
    # A run that has a log continues it. Requests and replies are stored only as those of a new run are.
    keeps = log.is_dir() or (sys.stderr.isatty() if wanted is None else wanted)
    with ExitStack() as here:
        async with keeping(root, keeps, progress.note) as recorder:
            kept = root.settings.keep_requests is not False and (sys.stderr.isatty() or wanted)
            hooks = RunCallbacks(on_event=on_event, recorder=recorder if kept else None, by="run")
            last = last_event(log)
            return await resume(
                root,
                run.run,
                hooks,
                with_changes=flags.with_changes,
                strict=flags.strict,
                on_unknown=flags.on_unknown,
                answers=flags.answers,
                # Events are numbered on from the log, so that its readers find no number twice.
                after=0 if last is None else last.seq,
                wait=WAIT,
                on_wait=lambda busy: progress.note(f"waiting: {busy}"),
            )
    raise AssertionError("unreachable: nothing swallows errors")


def _wire(run: InterruptedRun) -> dict[str, Any]:
    about = None if run.about is None else msgspec.structs.asdict(run.about)
    told = {**msgspec.structs.asdict(run), "about": about, "stuck": run.stuck, "why_not": run.why_not}
    del told["sign"]
    return told


def _narrow_row(run: InterruptedRun) -> tuple[str, ...]:
    """Return the columns that identify a run. The target is reduced to its last part, so that the prompt has room."""
    id, target, since, *_, stands, words = _row(run)
    path = Path(target)
    if "/" in target:
        target = path.parent.name if path.stem in ("graph", "config") and path.suffix else path.name
    return (id, one_line(target, 20), since, stands, words)


def _row(run: InterruptedRun) -> tuple[str, ...]:
    if run.about is None:
        return (run.run or "?", safe(run.damage), "", "", "", "", "")
    about, since = run.about, f"{age(max(0.0, time.time() - run.began))} ago"
    stands = "can't continue" if run.why_not else "stuck" if run.stuck else about.by or "program"
    words = one_line(run.why_not or about.prompt)
    return (run.run, safe(about.target), since, str(run.rows), str(run.life), stands, words)
