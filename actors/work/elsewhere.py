"""Parts of a run that are played elsewhere: what who plays a run needs of a cluster (`front/cluster/placing`).

A part is an agent that another one calls, or an item of a map with its branch. What a file says of it, and what stands
above it, goes along; see `protocol/place`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...protocol.errors import CallboardError, kinds
from ...protocol.failure import Failure
from ...protocol.outcome import ErrorReport, Outcome
from ...protocol.place import Branch

if TYPE_CHECKING:
    from ...supervisors import Actor
    from .context import RunContext
    from .record import Record


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run that may be played elsewhere.

    Attributes:
        name: what people call it.
        target: directory or file of the agent.
        needs: labels that a worker must have.
        prompt, variables, branch: see `RunRequest` and `PartOf`.
        context, depth: those of who would play it here.
        attempt: which attempt at it this is, from 1.
    """

    name: str
    target: Path
    needs: tuple[str, ...]
    context: RunContext
    depth: int
    prompt: str = ""
    variables: Mapping[str, str] = {}
    branch: Branch | None = None
    attempt: int = 1


class Elsewhere(Protocol):
    """Has parts of one run played elsewhere."""

    def __call__(self, me: Actor, part: Part) -> Awaitable[Outcome]:
        """Wait for a part, whose questions are asked by `me`; what it has used is counted.

        Raises:
            CallboardError: it can't be sent, or a limit of ours was reached.
        """


def error_in(outcome: Outcome) -> CallboardError | None:
    """What a part has failed with."""
    if outcome.status == "cancelled":
        return CallboardError("it was cancelled")
    return None if outcome.error is None else restored(outcome.error)


def restored(report: ErrorReport) -> CallboardError:
    """An error of the class that a report names."""
    kind = next((each for each in kinds() if each.code == report.code), CallboardError)
    about: dict[str, Any] = {} if report.node is None else {"node": report.node}
    if kind is CallboardError:
        about["code"] = report.code
    return Failure((kind.__name__,), report.message, about).restore()


def take_over(record: Record, outcome: Outcome) -> None:
    """Write down what a part has said and done."""
    if outcome.output:
        record.texts.append(outcome.output)
    record.turns += outcome.turns
    record.tool_calls += outcome.tool_calls
    record.children += outcome.children
    record.failures += [restored(each) for each in outcome.failures]
