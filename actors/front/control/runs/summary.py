"""Summary and outcome of a run, computed from its events.

The same code updates the summary of a live run, event by event, and computes that of a dead process's run from its log.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from .....protocol.control.resources import RunInfo
from .....protocol.decoding import convert, decode_json, json_decoder
from .....protocol.errors import exit_codes
from .....protocol.events import (
    KINDS,
    TERMINAL,
    Event,
    EventData,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    UsageUpdate,
    decode,
)
from .....protocol.jsonrpc import UNREADABLE, readable
from .....protocol.outcome import ErrorReport, Outcome
from ....views.run_view import RunView
from ..logs.files import LoggedEvent, read_page

LONGEST_PROMPT = 2_000
LONGEST_OUTPUT = 20_000
LONGEST_ERROR = 4_000
"""Characters of prompt, output and error in a summary; the events have the complete texts."""

_EXIT_CODES = {"done": 0, "failed": 1, "cancelled": 130, "interrupted": 130}

CONCERNS: frozenset[type[EventData]] = frozenset(
    {
        *(UsageUpdate, QuestionAsked, QuestionAnswered, QuestionExpired),
        *(RunStarted, RunResumed, RunFinished, RunFailed, RunCancelled),
    }
)
"""Events that change a summary."""


def sum_up(info: RunInfo, view: RunView, event: Event) -> None:
    """Update the summary after an event of `CONCERNS`, which the view must have seen."""
    info.status, info.open_questions = view.status, len(view.questions)
    info.input_tokens, info.output_tokens, info.cost = view.input_tokens, view.output_tokens, view.cost
    info.priced, info.life, info.resumable = view.priced, view.life, view.status == "interrupted"
    if isinstance(event.data, RunStarted):
        data = event.data
        info.name, info.dialect, info.model = data.name, data.dialect, data.model
        # A worker keeps the target that the gateway set: a path of the worker's machine means nothing to users.
        info.target = info.target or data.target
        info.prompt = readable(data.prompt[:LONGEST_PROMPT])
        info.cut = _too_long(prompt=(data.prompt, LONGEST_PROMPT))
        info.started = info.started or rfc3339(event.ts)
        # Results of an earlier incarnation do not apply to this one.
        info.ended, info.error, info.output, info.exit_code, info.stuck = None, None, "", None, False
    elif view.outcome is not None:
        info.ended = rfc3339(event.ts)
        output = str(view.outcome.get("output") or "")
        info.output = readable(output[:LONGEST_OUTPUT])
        info.cut = {**info.cut, **_too_long(output=(output, LONGEST_OUTPUT))}
        if view.outcome.get("error"):
            error = convert(view.outcome["error"], ErrorReport)
            info.cut = {**info.cut, **_too_long(error=(error.message, LONGEST_ERROR))}
            info.error = msgspec.structs.replace(error, message=readable(error.message[:LONGEST_ERROR]))
        code = info.error.code if info.error is not None else None
        info.exit_code = _EXIT_CODES[view.status] if code is None else exit_codes().get(code, 1)


def _too_long(**texts: tuple[str, int]) -> dict[str, int]:
    return {name: len(text) for name, (text, most) in texts.items() if len(text) > most}


def rfc3339(ts: datetime) -> str:
    """Return a time in the format of frames (RFC 3339, UTC)."""
    return ts.astimezone(UTC).isoformat().replace("+00:00", "Z")


class _Data(msgspec.Struct):
    outcome: dict[str, Any]


class _Last(msgspec.Struct):
    data: _Data


def outcome_of(info: RunInfo, last: LoggedEvent | None) -> Outcome:
    """Return the outcome in the last event. For a lost run or log, build one from the summary."""
    # The process was killed, or its log could not be written: the summary is the best source.
    if last is None or last.kind not in TERMINAL:
        error = info.error
        if error is None and info.status not in ("done", "cancelled"):
            error = ErrorReport(code="lost", message=f"the process of {info.run} ended before the run did")
        status = info.status if info.status in ("done", "cancelled") else "failed"
        return convert(
            {
                "run_id": info.run,
                "status": status,
                "output": info.output,
                "error": None if error is None else msgspec.to_builtins(error),
                "exit_code": 1 if info.exit_code is None else info.exit_code,
            },
            Outcome,
        )
    outcome = convert(decode_json(last.data, _Last).data.outcome, Outcome)
    outcome.exit_code = info.exit_code or 0
    return outcome


class _Time(msgspec.Struct, gc=False):
    ts: datetime


_TIME = json_decoder(_Time)


def summed_up(directory: Path, info: RunInfo) -> RunInfo:
    """Return the summary of a run whose process is dead, computed from its log; a run without an end is `lost`."""
    info, view = msgspec.structs.replace(info, seq=0), RunView()
    offset, last = 0, b""
    while True:
        page = read_page(directory, offset, info.seq)
        if not page.events:
            break
        offset = page.offset
        for logged in page.events:
            info.seq, last = logged.seq, logged.data
            if KINDS.get(logged.kind) in CONCERNS and (event := decode(logged.data)) is not None:
                with contextlib.suppress(*UNREADABLE):  # perhaps of another version; it must not hide all other runs
                    view.see(event)
                    sum_up(info, view, event)
    if not info.over:
        with contextlib.suppress(*UNREADABLE):
            info.ended = rfc3339(_TIME.decode(last).ts)
        info.status, info.ended, info.open_questions = "lost", info.ended or info.started or None, 0
    return info
