"""Outcome of a remote child, merged into the run (`context.RemoteParts`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.errors import CallboardError, kinds
from ...protocol.failure import Failure
from ...protocol.outcome import ErrorReport, Outcome

if TYPE_CHECKING:
    from .transcript import Record


def error_in(outcome: Outcome) -> CallboardError | None:
    """Return the error of a remote child, if it failed."""
    if outcome.status == "cancelled":
        return CallboardError("it was cancelled")
    return None if outcome.error is None else restored(outcome.error)


def restored(report: ErrorReport) -> CallboardError:
    """Return an error of the class that a report names; CallboardError if this version does not know the class."""
    kind = next((each for each in kinds() if each.code == report.code), CallboardError)
    about: dict[str, Any] = {} if report.node is None else {"node": report.node}
    if kind is CallboardError:
        about["code"] = report.code
    return Failure((kind.__name__,), report.message, about).restore()


def take_over(record: Record, outcome: Outcome) -> None:
    """Add the outcome of a remote child to a transcript."""
    if outcome.output:
        record.texts.append(outcome.output)
    record.turns += outcome.turns
    record.tool_calls += outcome.tool_calls
    record.children += outcome.children
    record.failures += [restored(each) for each in outcome.failures]
