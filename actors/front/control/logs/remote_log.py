"""Log of a run in another process, read on behalf of all its followers in this process.

The writing process sends no signal when the log grows, so the log is polled. One follower polls for all, and the others
sleep until new lines arrive; if the poller is cancelled, the next follower replaces it. Followers share the pages that
one of them reads, so a thousand followers cost the disk and the threads little more than one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import trio

from .reading import LogPage, size_of

if TYPE_CHECKING:
    from .runs import RunLogs

LOOK_EVERY = 0.25
"""Seconds between two polls."""

PAGES = 4
"""Pages cached for followers that reach the same position slightly later."""

Place: TypeAlias = "tuple[int, int]"
"""Position of a reader: byte offset, and number of its last event."""


class RemoteLog:
    """Shared reader of one log; `RunLogs.elsewhere` returns it.

    Args:
        logs: logs that contain the run.
        run: id of the run.
    """

    def __init__(self, logs: RunLogs, run: str) -> None:
        self._logs = logs
        self._run = run
        self._over = False
        self._size = -1
        self._pages: dict[Place, tuple[int, LogPage]] = {}
        self._at_work: dict[Hashable, trio.lowlevel.ParkingLot] = {}

    async def page(self, offset: int, after: int) -> LogPage:
        """Wait for the next events from a position and return them; none once the run has ended and all were read."""
        place = (offset, after)
        while True:
            over, size = self._over, self._size
            if size != offset:
                while (page := self._read_before(place, size)) is None:
                    await self._one_for_all(place, partial(self._read, place))
                if page.events:
                    return page
            if over:
                return LogPage([], offset)
            await self._one_for_all("look", self._poll)

    def _read_before(self, place: Place, size: int) -> LogPage | None:
        """Return a cached page. Events never change; an empty page is valid only while the log has not grown."""
        looked_at, page = self._pages.get(place, (-2, None))
        return page if page is not None and (page.events or looked_at >= size) else None

    async def _read(self, place: Place) -> None:
        size = self._size
        page = await self._logs.page(self._run, *place)
        # Removed first, so that the new entry becomes the youngest and is evicted last.
        self._pages.pop(place, None)
        self._pages[place] = size, page
        while len(self._pages) > PAGES:
            del self._pages[next(iter(self._pages))]

    async def _poll(self) -> None:
        """Poll until the log has grown or the run is over.

        The order matters: the check for the end precedes the size. A log that is read after the end is complete.
        """
        while True:
            if self._size >= 0:
                await trio.sleep(LOOK_EVERY)
            over = await self._logs.is_over(self._run)
            size = await trio.to_thread.run_sync(size_of, self._logs.directory / self._run)
            if (over, size) != (self._over, self._size):
                self._over, self._size = over, size
                return

    async def _one_for_all(self, what: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        """Execute `work` once for all concurrent callers with the same key.

        The others only wait for the end of that execution, which may be a cancellation, and then must check again.
        """
        # A waiting task does not get the result: it checks the shared state again after the wake-up.
        waiting = self._at_work.get(what)
        if waiting is not None:
            await waiting.park()
            return
        waiting = self._at_work[what] = trio.lowlevel.ParkingLot()
        try:
            await work()
        finally:
            del self._at_work[what]
            waiting.unpark_all()
