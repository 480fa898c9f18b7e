"""What `callboard resume` and `callboard runs --interrupted` do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from .. import Root
from ..actors.runs.durable import Interrupted, interrupted, resume
from ..protocol.errors import NotFound, UsageError
from ..protocol.events import Event
from ..protocol.outcome import Outcome
from ..protocol.repeats import OnUnknown
from .control.client import meant
from .control.figures import age
from .kept_playing import KeptFlags, play_kept
from .render.text import json_object, one_line, safe, table

_HEAD = ("RUN", "TARGET", "BEGAN", "ROWS", "LIVES", "PROMPT")


@dataclass(frozen=True, kw_only=True)
class ResumeFlags(KeptFlags):
    """The flags of `callboard resume`, as click read them."""

    all_runs: bool
    with_changes: bool
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
        CallboardError: none is meant, or one can't go on.
    """
    codes = [_play(run, flags) for run in _chosen(words, flags)]
    return next((code for code in codes if code), 0)


def _chosen(words: Sequence[str], flags: ResumeFlags) -> list[Interrupted]:
    there = [run for run in interrupted(os.environ) if not run.damage]
    by_id = {run.run: run for run in there}
    if words:
        return [by_id[_id_of(word, by_id)] for word in words]
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
    async def drive(root: Root, on_event: Callable[[Event], None], note: Callable[[str], None]) -> Outcome:
        note(f"{run.run} goes on ({run.rows} rows are on disk)")
        return await resume(
            root, run.run, on_event=on_event, with_changes=flags.with_changes, on_unknown=flags.on_unknown
        )

    return play_kept(run.run, run.about, flags, drive)


def _wire(run: Interrupted) -> dict[str, Any]:
    about = None if run.about is None else msgspec.structs.asdict(run.about)
    return {**msgspec.structs.asdict(run), "about": about}


def _row(run: Interrupted) -> tuple[str, ...]:
    if run.about is None:
        return (run.run or "?", safe(run.damage), "", "", "", "")
    since = f"{age(max(0.0, time.time() - run.began))} ago"
    return (run.run, safe(run.about.target), since, str(run.rows), str(run.life), one_line(run.about.prompt))
