"""Transcript of an agent: its text, calls and children so far.

The agent writes it while it works, and its caller reads it: the text survives a failure or cancellation of the agent.
The outcome of a remote child (`context.RemoteParts`) is added to the transcript of its caller.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...protocol.errors import CallboardError, kinds
from ...protocol.messages import Failure
from ...protocol.outcome import ChildRecord, ErrorReport, Outcome


class Record(msgspec.Struct, kw_only=True):
    """Transcript of one agent.

    Attributes:
        texts: its output, one text per turn with text.
        last: text of its last turn, possibly "".
        turns: number of model replies.
        tool_calls: number of executed tool calls, successful or not.
        children: the agents that it spawned, in order.
        failures: failures after which it continued although no author has accepted them (see `graph.node_exit`), in
            order.
    """

    texts: list[str] = []
    last: str = ""
    turns: int = 0
    tool_calls: int = 0
    children: list[ChildRecord] = []
    failures: list[CallboardError] = []

    @property
    def output(self) -> str:
        """All texts, joined by newlines."""
        return "\n".join(self.texts)


def error_in(outcome: Outcome) -> CallboardError | None:
    """Return the error of a remote child that failed or was cancelled; None if it completed."""
    if outcome.status == "cancelled":
        return CallboardError("the run was cancelled")
    return None if outcome.error is None else restored(outcome.error)


def restored(report: ErrorReport) -> CallboardError:
    """Return an error of the class whose `code` the report has.

    If this version knows no such class, return a CallboardError with that code.
    """
    kind = next((each for each in kinds() if each.code == report.code), CallboardError)
    about: dict[str, Any] = {} if report.node is None else {"node": report.node}
    if kind is CallboardError:
        about["code"] = report.code
    return Failure((kind.__name__,), report.message, about).restore()


def take_over(record: Record, outcome: Outcome) -> None:
    """Add the outcome of a remote child to a transcript, except for `last`."""
    if outcome.output:
        record.texts.append(outcome.output)
    record.turns += outcome.turns
    record.tool_calls += outcome.tool_calls
    record.children += outcome.children
    record.failures += [restored(each) for each in outcome.failures]
