"""Frames between two threads: trio's, where the server or the way to it is, and the screen's, with asyncio's loop.

Neither waits for the other. What comes for the screen gathers and is taken in a few times a second, each time for a few
milliseconds, so that a key that is pressed meanwhile is never far from its picture.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

import trio

GATHER = 0.02
"""Seconds in which frames for the screen gather."""

TAKE = 0.008
"""Seconds for which they are taken in at a time."""


class ScreenEnd:
    """The screen's end. `put` may be called from any thread, `begin` from the screen's.

    What is put may also be a function: it is called in its turn between the frames.
    """

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._frames: deque[bytes | Callable[[], None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """From now on frames are taken in, on the loop of this thread."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
            self._awake = True
        self._loop.call_soon(self._take)

    @property
    def waiting(self) -> int:
        """Frames that were not taken in yet."""
        return len(self._frames)

    def put(self, frame: bytes | Callable[[], None]) -> None:
        """A frame for the screen."""
        self._frames.append(frame)
        with self._lock:
            if self._awake or self._loop is None or self._loop.is_closed():
                return
            self._awake = True
            self._loop.call_soon_threadsafe(self._gather)

    def _gather(self) -> None:
        assert self._loop is not None
        self._loop.call_later(GATHER, self._take)

    def _take(self) -> None:
        until = time.monotonic() + TAKE
        try:
            while self._frames and time.monotonic() < until:
                frame = self._frames.popleft()
                if callable(frame):
                    frame()
                else:
                    self._receive(frame)
        finally:  # the next frames are taken in also if one of them is more than its handler can bear
            with self._lock:
                self._awake = bool(self._frames)
            if self._awake:
                assert self._loop is not None
                self._loop.call_later(0.001, self._take)


class TrioEnd:
    """Trio's end. `put` may be called from any thread; what comes before `begin` waits.

    end.begin()                  # in trio
    async for frame in end: ...
    """

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._token: trio.lowlevel.TrioToken | None = None
        self._lot = trio.lowlevel.ParkingLot()

    def begin(self) -> None:
        """From now on frames are delivered, to the trio of this thread."""
        self._token = trio.lowlevel.current_trio_token()

    def put(self, frame: bytes) -> None:
        """A frame for the server."""
        self._frames.append(frame)
        if self._token is not None:
            try:
                self._token.run_sync_soon(self._lot.unpark_all, idempotent=True)
            except trio.RunFinishedError:
                return  # the server is over, and so is the chat

    def clear(self) -> None:
        """What waits is for a connection that is no more."""
        self._frames.clear()

    def __aiter__(self) -> TrioEnd:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._frames:
            await self._lot.park()
        return self._frames.popleft()
