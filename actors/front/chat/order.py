"""The order in which lines are played: that in which they came, whichever of their tasks begins first.

turn = order.join()      # at once, when the line comes
with turn.waiting:       # until the line has begun an interrupt cancels this
    await turn.come()    # in its task: the lines before have begun
    turn.leave()         # it has begun, too; or it never will
"""

from __future__ import annotations

from collections import deque

import trio


class _Place:
    def __init__(self) -> None:
        self.next = trio.Event()
        self.scope = trio.CancelScope()


class Turn:
    """A line's place in the order. It is left with the last reference to it, too: a task may never have begun.

    Attributes:
        waiting: the scope that is cancelled when the line is withdrawn before it has begun.
    """

    def __init__(self, places: deque[_Place]) -> None:
        self._places = places
        self._place = _Place()
        self.waiting = self._place.scope
        places.append(self._place)
        if len(places) == 1:
            self._place.next.set()

    async def come(self) -> None:
        """Wait until it is this line's turn; a checkpoint only where it waits, or was withdrawn."""
        if self._place.next.is_set():
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await self._place.next.wait()

    def leave(self) -> None:
        """Let the next line have its turn; does nothing the second time."""
        if self._place in self._places:
            self._places.remove(self._place)
            if self._places:
                self._places[0].next.set()

    def __del__(self) -> None:
        self.leave()


class Order:
    """See the module."""

    def __init__(self) -> None:
        self._places: deque[_Place] = deque()

    def join(self) -> Turn:
        """A place behind all that are there."""
        return Turn(self._places)

    def withdraw(self) -> bool:
        """Cancel all that have come and not begun; whether there are any. Those that come later are not concerned."""
        for place in self._places:
            place.scope.cancel()
        return bool(self._places)
