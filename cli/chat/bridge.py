"""Frames between two threads: trio's thread with the server or its connection, and the screen's asyncio thread.

Neither thread waits for the other. Frames for the screen are batched and processed for a few milliseconds at a time, so
that a key press is never delayed noticeably.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

import trio

GATHER = 0.02
"""Seconds during which frames for the screen are batched."""

TAKE = 0.008
"""Seconds of processing at a time."""

GOODBYE = "goodbye"
"""Id of the last request of a connection."""


class ScreenEnd:
    """Queue towards the screen. `put` may be called from any thread, `begin` only from the screen's.

    A queued item may also be a function, which is called in order between the frames.
    """

    def __init__(self, receive: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._frames: deque[bytes | Callable[[], None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Start processing frames on the event loop of this thread."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
            self._awake = True
        self._loop.call_soon(self._take)

    @property
    def waiting(self) -> int:
        """Number of unprocessed frames."""
        return len(self._frames)

    def put(self, frame: bytes | Callable[[], None]) -> None:
        """Queue a frame for the screen. Thread-safe."""
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
        finally:  # continue with the next frames even if a handler raised an exception
            with self._lock:
                self._awake = bool(self._frames)
            if self._awake:
                assert self._loop is not None
                self._loop.call_later(0.001, self._take)


class TrioEnd:
    """Queue towards trio. `put` may be called from any thread; frames put before `begin` wait.

    end.begin()                  # in trio
    async for frame in end: ...
    """

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._token: trio.lowlevel.TrioToken | None = None
        self._lot = trio.lowlevel.ParkingLot()

    def begin(self) -> None:
        """Start delivering frames to the trio loop of this thread."""
        self._token = trio.lowlevel.current_trio_token()

    def put(self, frame: bytes) -> None:
        """Queue a frame for the server. Thread-safe."""
        self._frames.append(frame)
        if self._token is not None:
            try:
                self._token.run_sync_soon(self._lot.unpark_all, idempotent=True)
            except trio.RunFinishedError:
                return  # the server has ended, and so has the chat

    def clear(self) -> None:
        """Drop waiting frames: their connection is lost."""
        self._frames.clear()

    def __aiter__(self) -> TrioEnd:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        while not self._frames:
            await self._lot.park()
        return self._frames.popleft()
