"""Interface of memory stores."""

from __future__ import annotations

from .....supervisors import Actor


class MemoryStore:
    """Memory that several nodes share.

    Attributes:
        repeatable: a second `remember` under the same key has no effect.
    """

    repeatable = True

    async def recall(self, me: Actor, text: str, *, top_k: int, threshold: float) -> list[str]:
        """Return the texts for a query, best first.

        Args:
            text: the node's inputs, and its output if that exists already.
            top_k: most texts.
            threshold: least similarity, a cosine.

        Raises:
            CallboardError: the store cannot be read.
        """
        raise NotImplementedError

    async def remember(self, me: Actor, given: str, said: str, key: str | None = None) -> None:
        """Store a node's inputs and output; a read-only store does nothing.

        Args:
            key: key of this write, in a durable run; None if it is never repeated.

        Raises:
            CallboardError: the store cannot be written.
        """

    def close(self) -> None:
        """Close the store's own files and connections."""
