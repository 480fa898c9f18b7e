"""The warnings of a run under way, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from .....protocol.errors import CallboardError
from ..messages import Message
from .perform import Said


class Warned(msgspec.Struct, frozen=True):
    """Something the author of the file should know."""

    code: str
    message: str
    node: str | None = None


class Result(msgspec.Struct, kw_only=True):
    """How a run ended, or how far it has come.

    Attributes:
        final: the result: the last message of the final node.
        final_messages: everything the final node has said.
        leftover: what is still queued, by node.
        outputs: what each node has said.
        order: the nodes in the order in which they were fired, those of subgraphs among them.
        unaccepted: failures that it went on over although no author has said `on_error: continue`, in order.
        error: what ended the run before its time.
    """

    final: str = ""
    final_messages: tuple[Message, ...] = ()
    leftover: dict[str, tuple[Message, ...]] = {}
    outputs: dict[str, tuple[Message, ...]] = {}
    order: list[str] = []
    unaccepted: tuple[CallboardError, ...] = ()
    error: CallboardError | None = None

    def said(self) -> Said:
        """What the node of a subgraph says whose graph came to this: something, even if that was nothing."""
        if self.error is not None:
            return Said(error=self.error, unaccepted=self.unaccepted)
        outputs = self.final_messages or (Message(role="assistant", content=""),)
        return Said(outputs=outputs, unaccepted=self.unaccepted)


VOTE = "MAJORITY_VOTE"
"""The source of a majority's message."""


def majority(votes: Iterable[str]) -> Message:
    """The most frequent vote, of equals the one that was given first; blank ones count only among themselves."""
    given = list(votes)
    counts = Counter([vote for vote in given if vote.strip()] or given)
    winner = counts.most_common(1)[0][0] if counts else ""
    return Message(role="assistant", content=winner, source=VOTE)
