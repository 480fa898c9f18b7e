"""Queue of frames for a connection that watches a chat.

A chat never waits for a watcher. The unsent frames are counted in bytes: at most `MOST_BEHIND` per watcher, and
`outbox.MOST_BYTES` for all unread output of an API key. A frame beyond either limit ends the watcher: its queue is
dropped, and the client is notified. All watchers of a chat share the bytes of a frame, but each counts them.
"""

from __future__ import annotations

from collections import deque
from typing import final

import trio

from ...io.outbox import MOST_BYTES, Unread

MOST_BEHIND = 1024 * 1024
"""Bytes queued for one watcher."""

OF_FRAME = 64
"""Overhead in bytes that a queued frame counts."""


@final
class Watcher:
    """Bounded queue: `put` frames, and read them by `async for frame in watcher`.

    Args:
        unread: counter of the unread output of the API key.

    Attributes:
        lagged: whether it fell behind and was ended.
        left: whether the client has unsubscribed and needs no final notification.
        bytes: queued bytes, including the frame being sent.
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
        """Queue a frame without waiting; returns False if the watcher has ended or falls behind by this frame."""
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
        """End the queue after the frames in it."""
        self._ended = True
        self._news.unpark_all()

    def leave(self) -> None:
        """End the queue because the client unsubscribed."""
        self.left = True
        self.drop()

    def drop(self) -> None:
        """End the queue and drop the frames in it."""
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
        self._unread.taken(self._sending)  # from here on, the connection's outbox counts it
        return frame
