"""Frames of a chat for a connection that watches it, as far as it falls behind.

A chat waits for no watcher. What a watcher has not taken yet is counted in bytes: `MOST_BEHIND` of one, and together
with all else that its key has not read `outbox.MOST_BYTES`. One frame more, and the watcher has fallen behind: what
waits for it is dropped, and the watcher hears so. A frame that would not fit alone ends it as well. All watchers of a
chat share the bytes of a frame, and each counts them.
"""

from __future__ import annotations

from collections import deque
from typing import final

import trio

from ...io.outbox import MOST_BYTES, Unread

MOST_BEHIND = 1024 * 1024
"""Bytes that wait for one watcher."""

OF_FRAME = 64
"""Bytes that a frame takes beside its own."""


@final
class Watcher:
    """See the module: `put` frames, and `async for frame in watcher`.

    Args:
        unread: what the connections of its key have not read.

    Attributes:
        lagged: whether it fell behind, and gets nothing more.
        left: whether its client wants nothing more, nor to hear that there is nothing more.
        bytes: how many wait for it, the frame that it is being sent included.
    """

    def __init__(self, unread: Unread) -> None:
        self.lagged = False
        self.left = False
        self.bytes = 0
        self._unread = unread
        self._frames: deque[bytes] = deque()
        self._sending = 0
        self._ended = False
        self._news = trio.lowlevel.ParkingLot()

    def put(self, frame: bytes) -> bool:
        """Have it get a frame; never waits. False if it has fallen behind, and gets none any more."""
        if self._ended:
            return False
        size = len(frame) + OF_FRAME
        if self.bytes + size > MOST_BEHIND or self._unread.bytes + size > MOST_BYTES:
            self.lagged = True
            self.drop()
            return False
        self.bytes += size
        self._unread.add(size)
        self._frames.append(frame)
        self._news.unpark_all()
        return True

    def end(self) -> None:
        """No more frames: it gets what is left, then the end."""
        self._ended = True
        self._news.unpark_all()

    def leave(self) -> None:
        """Its client has asked for no more."""
        self.left = True
        self.drop()

    def drop(self) -> None:
        """As `end`, and what is left is dropped."""
        self._frames.clear()
        self._unread.taken(self.bytes - self._sending)
        self.bytes = self._sending
        self.end()

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> bytes:
        self.bytes -= self._sending
        self._sending = 0
        while not self._frames:
            if self._ended:
                raise StopAsyncIteration
            await self._news.park()
        frame = self._frames.popleft()
        self._sending = len(frame) + OF_FRAME
        self._unread.taken(self._sending)  # from here on the connection's outbox counts it
        return frame
