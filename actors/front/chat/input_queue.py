"""Input queue: lines are executed in the order of their arrival, whichever of their tasks runs first.

turn = order.join()      # synchronously, when the line arrives
with turn.waiting:       # an interrupt cancels this block until the line has begun
    await turn.come()    # in the line's task: waits until all earlier lines have begun
    turn.leave()         # lets the next line begin; also needed if this one never does
"""

from __future__ import annotations

from collections import deque

import trio


class _Place:
    def __init__(self) -> None:
        self.next = trio.Event()
        self.scope = trio.CancelScope()


class LineTurn:
    """Place of a line in the queue.

    `__del__` leaves it as well, because a line's task may be cancelled before its first step.

    Attributes:
        waiting: scope that is cancelled when the line is withdrawn before it has begun.
    """

    def __init__(self, places: deque[_Place]) -> None:
        self._places = places
        self._place = _Place()
        self.waiting = self._place.scope
        places.append(self._place)
        # No line is before this one, so none would let it begin.
        if len(places) == 1:
            self._place.next.set()

    async def come(self) -> None:
        """Wait until all earlier lines have begun. A checkpoint only if it has to wait or was withdrawn."""
        if self._place.next.is_set():
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await self._place.next.wait()

    def leave(self) -> None:
        """Let the next line begin; idempotent."""
        if self._place in self._places:
            self._places.remove(self._place)
            if self._places:
                self._places[0].next.set()

    def __del__(self) -> None:
        self.leave()


class Order:
    """Queue of lines that have not begun."""

    def __init__(self) -> None:
        self._places: deque[_Place] = deque()

    def join(self) -> LineTurn:
        """Return a place at the end of the queue."""
        return LineTurn(self._places)

    def withdraw(self) -> bool:
        """Cancel all lines that have not begun; returns True if there were any. Later lines are not affected."""
        for place in self._places:
            place.scope.cancel()
        return bool(self._places)
