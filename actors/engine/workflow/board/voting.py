"""Majority voting: every node answers the task by itself, and what most of them say is the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..messages import Message

VOTE = "MAJORITY_VOTE"
"""The source of a majority's message."""


def majority(votes: Iterable[str]) -> Message:
    """The most frequent vote, of equals the one that was given first; blank ones count only among themselves."""
    given = list(votes)
    counts = Counter([vote for vote in given if vote.strip()] or given)
    winner = counts.most_common(1)[0][0] if counts else ""
    return Message(role="assistant", content=winner, source=VOTE)
