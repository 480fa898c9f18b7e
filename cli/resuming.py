"""What `callboard resume` and `callboard runs --interrupted` do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from .. import Root
from ..actors.front.control.logs.reading import last_event
from ..actors.io.lines import from_any_thread
from ..actors.runs.durable import Interrupted, interrupted, resume
from ..actors.runs.loading import Hooks
from ..protocol.ages import age
from ..protocol.errors import CallboardError, NotFound, UsageError
from ..protocol.events import Event, RunStarted
from ..protocol.journal import BATCH
from ..protocol.outcome import Outcome
from ..protocol.repeats import OnUnknown
from . import logging
from .control.client import meant
from .control.commands.kept import runs_dir
from .frame import keeping, person_at_terminal, play
from .kept_playing import KeptFlags, go_where
from .render.answer import Answer, AnswerResult, look_of
from .render.plain import choose
from .render.progress import Progress
from .render.result import Result, for_format
from .render.text import json_object, one_line, safe, table
from .running import WAIT, finish, seen_by_ps

_HEAD = ("RUN", "TARGET", "BEGAN", "ROWS", "LIVES", "BY", "PROMPT")

_SIGNALLED = 128
"""Exit codes from here on: a signal has ended us."""


@dataclass(frozen=True, kw_only=True)
class ResumeFlags(KeptFlags):
    """The flags of `callboard resume`, as click read them."""

    all_runs: bool
    with_changes: bool
    strict: bool
    on_unknown: OnUnknown | None


def list_interrupted(*, limit: int, as_json: bool) -> str:
    """The text of `runs --interrupted`."""
    runs = interrupted(os.environ)[::-1][:limit]
    if as_json:
        return json_object(runs=[_wire(run) for run in runs])
    if not runs:
        return "no durable run was interrupted\n"
    return table([_HEAD, *map(_row, runs)])


def go_on(words: Sequence[str], flags: ResumeFlags) -> int:
    """Goes on with the runs that are meant, one after another; the exit code is that of the first that is not done.

    Raises:
        CallboardError: none is meant, or the only one can't go on.
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
            break
    return next((code for code in codes if code), 0)


def _chosen(words: Sequence[str], flags: ResumeFlags) -> list[Interrupted]:
    everything = interrupted(os.environ)
    by_id = {run.run: run for run in everything if run.run}
    if words:
        return [by_id[_id_of(word, by_id)] for word in words]
    there = [run for run in everything if not run.why_not and (run.about is None or run.about.by != BATCH)]
    if flags.all_runs:
        return there
    if not there:
        raise NotFound("no durable run was interrupted (callboard run --durable keeps one)")
    if len(there) > 1:
        named = ", ".join(run.run for run in there[-5:])
        raise UsageError(f"{len(there)} runs were interrupted: name one ({named}), or give --all")
    return there


def _id_of(word: str, there: dict[str, Interrupted]) -> str:
    id = meant(word, there)
    if id is None:
        raise NotFound(f"no durable run '{word}' was interrupted; callboard runs --interrupted lists those that were")
    return id


def _play(run: Interrupted, flags: ResumeFlags) -> int:
    logging.configure()
    person = person_at_terminal(no_input=flags.no_input)
    shared = flags.output == "stream-json" and sys.stdout.isatty()
    progress = choose(sys.stderr, quiet=flags.quiet, verbose=flags.verbose, prompting=person, shared=shared)
    if flags.output == "text" and sys.stdout.isatty():
        progress = answer = Answer(progress, sys.stdout, streams=True)
        result: Result = AnswerResult(sys.stdout, answer)
    else:
        result = for_format(flags.output, sys.stdout)
    config_dir = flags.config_dir or (None if run.about is None else run.about.config_dir)
    go_where(run.run, run.about)
    driver = partial(_drive, run, flags, progress, result)
    outcome = play(driver, progress, config_dir=config_dir, person=person)
    return finish(outcome, result)


async def _drive(run: Interrupted, flags: ResumeFlags, progress: Progress, result: Result, root: Root) -> Outcome:
    if isinstance(progress, Answer):
        progress.begin(look_of(root.settings.other, Path(root.config_dir), sys.stdout, os.environ))
    result.when_gone(from_any_thread(root.begin_stop))

    def on_event(event: Event) -> None:
        progress.on_event(event)
        if isinstance(event.data, RunStarted):
            here.enter_context(seen_by_ps(event))
        result.on_event(event)

    progress.note(f"{run.run} goes on ({run.rows} rows are on disk)")
    log = runs_dir() / run.run
    wanted = root.settings.keep_requests
    keeps = log.is_dir() or (sys.stderr.isatty() if wanted is None else wanted)
    with ExitStack() as here:
        async with keeping(root, keeps, progress.note) as recorder:
            kept = root.settings.keep_requests is not False and (sys.stderr.isatty() or wanted)
            hooks = Hooks(on_event=on_event, recorder=recorder if kept else None, by="run")
            last = last_event(log)
            return await resume(
                root,
                run.run,
                hooks,
                with_changes=flags.with_changes,
                strict=flags.strict,
                on_unknown=flags.on_unknown,
                after=0 if last is None else last.seq,
                wait=WAIT,
                on_wait=lambda busy: progress.note(f"waiting: {busy}"),
            )
    raise AssertionError("unreachable: nothing swallows errors")


def _wire(run: Interrupted) -> dict[str, Any]:
    about = None if run.about is None else msgspec.structs.asdict(run.about)
    told = {**msgspec.structs.asdict(run), "about": about, "stuck": run.stuck, "why_not": run.why_not}
    del told["sign"]
    return told


def _row(run: Interrupted) -> tuple[str, ...]:
    if run.about is None:
        return (run.run or "?", safe(run.damage), "", "", "", "", "")
    about, since = run.about, f"{age(max(0.0, time.time() - run.began))} ago"
    stands = "can't go on" if run.why_not else "stuck" if run.stuck else about.by or "program"
    words = one_line(run.why_not or about.prompt)
    return (run.run, safe(about.target), since, str(run.rows), str(run.life), stands, words)
