"""A run's summary, kept up to date from its events, and its outcome.

The same code does it while the run goes on, from the events themselves, and for a run whose process was killed, from
what it has left on disk.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from .....protocol.control.things import RunInfo
from .....protocol.decoding import convert, decode_json
from .....protocol.errors import exit_codes
from .....protocol.events import (
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
)
from .....protocol.jsonrpc import readable
from .....protocol.outcome import ErrorReport, Outcome
from ....views.run_view import RunView

if TYPE_CHECKING:
    from ..logs.reading import LoggedEvent

LONGEST_PROMPT = 2_000
LONGEST_OUTPUT = 20_000
LONGEST_ERROR = 4_000
"""Characters of prompt, output and error that a summary keeps; the events have them whole."""

_EXIT_CODES = {"done": 0, "failed": 1, "cancelled": 130, "interrupted": 130}

CONCERNS: frozenset[type[EventData]] = frozenset(
    {
        *(UsageUpdate, QuestionAsked, QuestionAnswered, QuestionExpired),
        *(RunStarted, RunResumed, RunFinished, RunFailed, RunCancelled),
    }
)
"""What a summary is made of."""


def sum_up(info: RunInfo, view: RunView, event: Event) -> None:
    """Bring the summary up to date after an event of `CONCERNS`, which the view has seen."""
    info.status, info.open_questions = view.status, len(view.questions)
    info.input_tokens, info.output_tokens, info.cost = view.input_tokens, view.output_tokens, view.cost
    info.priced, info.life, info.resumable = view.priced, view.life, view.status == "interrupted"
    if isinstance(event.data, RunStarted):
        data = event.data
        info.name, info.dialect, info.model = data.name, data.dialect, data.model
        info.target = info.target or data.target  # a worker has it from a gateway, where it is no path of the worker's
        info.prompt = readable(data.prompt[:LONGEST_PROMPT])
        info.started = info.started or rfc3339(event.ts)
        info.ended, info.error, info.output, info.exit_code, info.stuck = None, None, "", None, False
    elif view.outcome is not None:
        info.ended = rfc3339(event.ts)
        info.output = readable(str(view.outcome.get("output") or "")[:LONGEST_OUTPUT])
        if view.outcome.get("error"):
            error = convert(view.outcome["error"], ErrorReport)
            info.error = msgspec.structs.replace(error, message=readable(error.message[:LONGEST_ERROR]))
        code = info.error.code if info.error is not None else None
        info.exit_code = _EXIT_CODES[view.status] if code is None else exit_codes().get(code, 1)


def rfc3339(ts: datetime) -> str:
    """A time as frames say it."""
    return ts.astimezone(UTC).isoformat().replace("+00:00", "Z")


class _Data(msgspec.Struct):
    outcome: dict[str, Any]


class _Last(msgspec.Struct):
    data: _Data


def outcome_of(info: RunInfo, last: LoggedEvent | None) -> Outcome:
    """The outcome that the last event tells; of a run that is lost, or whose log is, what the summary knows."""
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
