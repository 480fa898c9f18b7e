"""The order in which lines are played: that in which they came, whichever of their tasks begins first.

turn = order.join()      # at once, when the line comes
await turn.come()        # in its task: the lines before have begun
turn.leave()             # it has begun, too; or it never will
"""

from __future__ import annotations

from collections import deque

import trio


class Turn:
    """A line's place in the order. It is left with the last reference to it, too: a task may never have begun."""

    def __init__(self, waiting: deque[trio.Event]) -> None:
        self._waiting = waiting
        self._next = trio.Event()
        waiting.append(self._next)
        if len(waiting) == 1:
            self._next.set()

    async def come(self) -> None:
        """Wait until it is this line's turn."""
        if not self._next.is_set():
            await self._next.wait()

    def leave(self) -> None:
        """Let the next line have its turn; does nothing the second time."""
        if self._next in self._waiting:
            self._waiting.remove(self._next)
            if self._waiting:
                self._waiting[0].set()

    def __del__(self) -> None:
        self.leave()


class Order:
    """See the module."""

    def __init__(self) -> None:
        self._waiting: deque[trio.Event] = deque()

    def join(self) -> Turn:
        """A place behind all that are there."""
        return Turn(self._waiting)
