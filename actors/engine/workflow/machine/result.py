"""Warnings of a run, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from .....protocol.errors import CallboardError
from ..messages import Message
from .perform import Said


class WorkflowWarning(msgspec.Struct, frozen=True):
    """Warning for the author of the file."""

    code: str
    message: str
    node: str | None = None


class MachineResult(msgspec.Struct, kw_only=True):
    """Result of a run, or its intermediate result.

    Attributes:
        final: the text of the final node's last message.
        final_messages: all output of the final node.
        leftover: queued messages, by node.
        outputs: output of each node.
        order: the fired nodes in order, including the nodes of subgraphs.
        unaccepted: failures that were tolerated without `on_error: continue` in the file, in order.
        error: the failure that ended the run.
    """

    final: str = ""
    final_messages: tuple[Message, ...] = ()
    leftover: dict[str, tuple[Message, ...]] = {}
    outputs: dict[str, tuple[Message, ...]] = {}
    order: list[str] = []
    unaccepted: tuple[CallboardError, ...] = ()
    error: CallboardError | None = None

    def said(self) -> Said:
        """Return the output of a subgraph's node whose graph has this result; never empty, so that the next node can
        run.
        """
        if self.error is not None:
            return Said(error=self.error, unaccepted=self.unaccepted)
        outputs = self.final_messages or (Message(role="assistant", content=""),)
        return Said(outputs=outputs, unaccepted=self.unaccepted)


VOTE = "MAJORITY_VOTE"
"""Source of a majority's message."""


def majority(votes: Iterable[str]) -> Message:
    """Return the most frequent vote, and the first of several; blank votes count only if all are blank."""
    given = list(votes)
    counts = Counter([vote for vote in given if vote.strip()] or given)
    # `most_common` keeps the order of insertion among equal counts.
    winner = counts.most_common(1)[0][0] if counts else ""
    return Message(role="assistant", content=winner, source=VOTE)
