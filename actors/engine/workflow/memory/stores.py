"""The interface of a memory store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from .....supervisors import Actor


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for.

    Attributes:
        text: what the node was given, and said if it has spoken already.
        top_k: texts at most.
        threshold: the least likeness, a cosine.
    """

    text: str
    top_k: int
    threshold: float


class Experience(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be remembered: what a node was given, and what it said."""

    given: str
    said: str


class Store(Protocol):
    """Remembers for many nodes at once."""

    async def recall(self, me: Actor, question: Question) -> list[str]:
        """What it knows about something, the best first.

        Raises:
            CallboardError: it can't be read.
        """
        ...

    async def remember(self, me: Actor, experience: Experience) -> None:
        """Keep something.

        Raises:
            CallboardError: it can't be written.
        """
        ...

    async def aclose(self) -> None:
        """Close its files and connections. Never waits."""
        ...
