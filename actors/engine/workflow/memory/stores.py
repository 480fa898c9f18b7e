"""The interface of a memory store."""

from __future__ import annotations

from .....supervisors import Actor


class Store:
    """Remembers for many nodes at once.

    Attributes:
        repeatable: to remember the same twice under one key is to remember it once.
    """

    repeatable = True

    async def recall(self, me: Actor, text: str, *, top_k: int, threshold: float) -> list[str]:
        """What it knows about a text, the best first.

        Args:
            text: what the node was given, and said if it has spoken already.
            top_k: texts at most.
            threshold: the least likeness, a cosine.

        Raises:
            CallboardError: it can't be read.
        """
        raise NotImplementedError

    async def remember(self, me: Actor, given: str, said: str, key: str | None = None) -> None:
        """Keep what a node was given and what it said; nothing in a store that is only read.

        Args:
            key: of this writing, in a durable run; None where it is not done again.

        Raises:
            CallboardError: it can't be written.
        """

    def close(self) -> None:
        """Close its files and connections, if it has any of its own."""
