"""Sends frames to one client: they gather in a bounded buffer, and one task writes them, many at a time.

Senders get cancelled (a subscription ends, a request is withdrawn). If they wrote to the socket themselves, a cancelled
one could leave half a frame there, and the client could not parse what follows. So senders only put whole frames in
here, and wait while it is full; the writer alone touches the stream, and ends with the connection.

A connection buffers little, but a key may have many, and may request a large answer on each. So the bytes that wait for
a key are counted over all its connections (`Unread`), and its next request waits while there are too many. Requests
whose answer may be long and is made in steps take turns besides: each of them holds what it has made.

    with unread.of(caller.subject) as mine:
        await mine.room()
        mine.add(len(frame))    # and `mine.taken` when the client has it
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import final

import trio

ROOM = 64 * 1024
"""Bytes that may wait; a single frame may be larger."""

MOST_BYTES = 4 * 1024 * 1024
"""Of one key; a frame that is begun below it may go beyond."""

TURNS = 4
"""Long answers of one key that are in the making, or wait to be sent, at a time."""


class Gone(Exception):
    """The other side is not there any more."""


class Outbox:
    """See the module.

    Args:
        send: writes bytes to the stream; raises trio's errors of broken streams.
        head, end: what stands before and behind a frame on the wire, by its size; neither counts as waiting.
        most: bytes that may wait.
        unread: what waits for all connections of the same key.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        *,
        head: Callable[[int], bytes] | None = None,
        end: bytes = b"",
        most: int = ROOM,
        unread: Unread | None = None,
    ) -> None:
        self._send = send
        self._head = head
        self._end = end
        self._most = most
        self._unread = unread or Unread()
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._gone = False
        self._news = trio.lowlevel.ParkingLot()
        self._less = trio.lowlevel.ParkingLot()

    async def room(self) -> None:
        """Wait until a frame could be put in at once: before it is made, so that who waits holds nothing.

        Raises:
            Gone: the client is not there any more.
        """
        while True:
            while self._bytes >= self._most and not self._gone:
                await self._less.park()
            if self._gone:
                raise Gone
            await self._unread.room()
            if self._bytes < self._most and not self._gone:
                return

    async def put(self, frame: bytes) -> None:
        """Send a frame. A checkpoint only if there is no room.

        Raises:
            Gone: the client is not there any more.
        """
        size = len(frame)
        self._unread.add(size)
        try:
            while self._bytes >= self._most and not self._gone:
                await self._less.park()
            if self._gone:
                raise Gone
        except BaseException:  # cancelled too: what was counted for it is given back
            self._unread.taken(size)
            raise
        self._add(frame)

    def put_nowait(self, frame: bytes, *, droppable: bool = False) -> None:
        """Send a frame, even if there is no room, unless it is `droppable`; a client that is gone gets nothing."""
        if not self._gone and not (droppable and self._bytes >= self._most):
            self._unread.add(len(frame))
            self._add(frame)

    def _add(self, frame: bytes) -> None:
        if self._head is not None:
            self._waiting.append(self._head(len(frame)))
        self._waiting.append(frame)
        if self._end:
            self._waiting.append(self._end)
        self._bytes += len(frame)
        if self._news:
            self._news.unpark_all()

    async def write(self) -> None:
        """Write what is put in, until the connection breaks or this is cancelled."""
        try:
            while True:
                while not self._waiting:
                    await self._news.park()
                if not await self.write_all():
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            self._gone = True
            self._less.unpark_all()

    async def write_all(self) -> bool:
        """Write what waits now; False if the connection takes no more frames."""
        size = self._bytes
        waiting, self._waiting = self._waiting, []
        together = b"".join(waiting)
        waiting.clear()  # else all of it would be there twice while the client reads
        await self._send(together)
        self._bytes -= size
        self._unread.taken(size)
        self._less.unpark_all()
        return True

    async def emptied(self) -> None:
        """Wait until all is written, or nothing more can be."""
        while self._bytes and not self._gone:
            await self._less.park()

    def close(self) -> None:
        """The connection has ended: what was not sent never will be."""
        self._waiting.clear()
        self._unread.taken(self._bytes)
        self._bytes = 0


@final
class Unread:
    """What waits for the connections of one key. See the module.

    Attributes:
        bytes: how many wait.
        turn: a block for making a long answer and sending it.
        connections: how many share it.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.turn = trio.Semaphore(TURNS)
        self.connections = 0
        self._less = trio.lowlevel.ParkingLot()

    async def room(self) -> None:
        """Wait until more may be made for this key. A checkpoint only if it has to wait."""
        while self.bytes >= MOST_BYTES:
            await self._less.park()

    def add(self, size: int) -> None:
        """So much is on its way."""
        self.bytes += size

    def taken(self, size: int) -> None:
        """So much was taken by the client, or is dropped."""
        self.bytes -= size
        if self.bytes < MOST_BYTES:
            self._less.unpark_all()


@final
class UnreadOfAll:
    """`Unread` by key."""

    def __init__(self) -> None:
        self._of: dict[str, Unread] = {}

    @contextlib.contextmanager
    def of(self, subject: str) -> Iterator[Unread]:
        """What is shared by the connections of this key, while the block of one of them lasts."""
        mine = self._of.setdefault(subject, Unread())
        mine.connections += 1
        try:
            yield mine
        finally:
            mine.connections -= 1
            if not mine.connections:
                del self._of[subject]
