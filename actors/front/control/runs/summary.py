"""A run's summary, kept up to date from its events.

The same code does it while the run goes on, from the events themselves, and for a run whose process was killed, from
what it has left on disk.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime

import msgspec

from .....protocol.control.things import RunInfo
from .....protocol.errors import CallboardError
from .....protocol.events import (
    EventData,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunStarted,
    UsageUpdate,
)
from .....protocol.jsonrpc import readable
from .....protocol.outcome import ErrorReport

LONGEST_PROMPT = 2_000
LONGEST_OUTPUT = 20_000
LONGEST_ERROR = 4_000
"""Characters of prompt, output and error that a summary keeps; the events have them whole."""

CONCERNS: frozenset[type[EventData]] = frozenset(
    {
        RunStarted,
        UsageUpdate,
        QuestionAsked,
        QuestionAnswered,
        QuestionExpired,
        RunFinished,
        RunFailed,
        RunCancelled,
    }
)
"""What a summary is made of; it need not be told of anything else."""


class Summary:
    """See the module.

    Attributes:
        info: the summary.
    """

    def __init__(self, info: RunInfo) -> None:
        self.info = info
        self._models: dict[str, UsageUpdate] = {}
        self._open: set[str] = set()

    def take(self, data: EventData, id: str, ts: datetime) -> None:
        """Count in one event of `CONCERNS`."""
        info = self.info
        if isinstance(data, UsageUpdate):
            before = self._models.get(data.model)
            self._models[data.model] = data
            info.input_tokens += data.input_tokens - (before.input_tokens if before else 0)
            info.output_tokens += data.output_tokens - (before.output_tokens if before else 0)
            info.cost += data.cost - (before.cost if before else 0.0)
        elif isinstance(data, QuestionAsked):
            self._open.add(id)
            self._count_questions()
        elif isinstance(data, QuestionAnswered | QuestionExpired):
            self._open.discard(id)
            self._count_questions()
        elif isinstance(data, RunStarted):
            info.target, info.name, info.dialect, info.model = data.target, data.name, data.dialect, data.model
            info.prompt = readable(data.prompt[:LONGEST_PROMPT])
            info.started = rfc3339(ts)
        elif isinstance(data, RunFinished | RunFailed | RunCancelled):
            self._end(data, ts)

    def _count_questions(self) -> None:
        info = self.info
        info.open_questions = len(self._open)
        if not info.over:
            info.status = "waiting" if self._open else "running"

    def _end(self, data: RunFinished | RunFailed | RunCancelled, ts: datetime) -> None:
        info = self.info
        info.status = (
            "done" if isinstance(data, RunFinished) else "failed" if isinstance(data, RunFailed) else "cancelled"
        )
        info.ended = rfc3339(ts)
        info.open_questions = 0
        said = data.outcome if isinstance(data.outcome, dict) else {}
        info.output = readable(str(said.get("output") or "")[:LONGEST_OUTPUT])
        if said.get("error"):
            error = msgspec.convert(said["error"], ErrorReport)
            info.error = msgspec.structs.replace(error, message=readable(error.message[:LONGEST_ERROR]))
        info.exit_code = exit_code_of(info)


def exit_code_of(info: RunInfo) -> int | None:
    """What `callboard run` would have ended with."""
    if info.error is not None:
        return _exit_codes().get(info.error.code, CallboardError.exit_code)
    return {"done": 0, "failed": 1, "cancelled": 130}.get(info.status)


@functools.cache
def _exit_codes() -> dict[str, int]:
    codes: dict[str, int] = {}
    waiting: list[type[CallboardError]] = [CallboardError]
    while waiting:
        kind = waiting.pop()
        codes.setdefault(kind.code, kind.exit_code)
        waiting += kind.__subclasses__()
    return codes


def rfc3339(ts: datetime) -> str:
    """A time as frames say it."""
    return ts.astimezone(UTC).isoformat().replace("+00:00", "Z")
