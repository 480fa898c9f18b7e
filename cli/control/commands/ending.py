"""How a run ended, in the words that `logs` and `runs show` have in common."""

from __future__ import annotations

from ....protocol.control.things import RunInfo
from ....protocol.outcome import ErrorReport, Outcome
from ...render.text import safe

_REASONS = {
    "cancelled": "cancelled: the run was stopped from outside, by a person, a program or the end of its process",
    "lost": "lost: the process of the run ended before the run did",
}


def standing(status: str, exit_code: int | None) -> str:
    """`failed (exit code 6)`."""
    return status + (f" (exit code {exit_code})" if exit_code is not None else "")


def reason(status: str, error: ErrorReport | None) -> str:
    """Why it is not done: the error, whole, with its code and node; "" of a run that is done or under way."""
    if error is None:
        return _REASONS.get(status, "")
    where = f"node '{error.node}': " if error.node else ""
    return f"{error.code}: {safe(where + error.message)}"


def ending(of: RunInfo | Outcome) -> list[str]:
    """The lines that a log ends with; none for a run that is done or under way."""
    id = of.run if isinstance(of, RunInfo) else of.run_id
    why = reason(of.status, of.error)
    return [f"{safe(id)}: {standing(of.status, of.exit_code)}", *why.split("\n")] if why else []
