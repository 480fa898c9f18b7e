"""How a run ended, from its last event."""

from __future__ import annotations

from typing import Any

import msgspec

from .....protocol.control.things import RunInfo
from .....protocol.events import TERMINAL
from .....protocol.outcome import ErrorReport, Outcome
from ..logs.reading import LoggedEvent


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
        return msgspec.convert(
            {
                "run_id": info.run,
                "status": status,
                "output": info.output,
                "error": None if error is None else msgspec.to_builtins(error),
                "exit_code": 1 if info.exit_code is None else info.exit_code,
            },
            Outcome,
        )
    told = msgspec.json.decode(last.data, type=_Last).data.outcome
    outcome = msgspec.convert(told, Outcome)
    outcome.exit_code = info.exit_code or 0
    return outcome
