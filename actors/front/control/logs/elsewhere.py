"""Reads the log of a run in another process, for all its followers here.

No signal says that the log has grown, so it is polled. One follower does that for all, and the others sleep until
there are new lines; if that one is cancelled, the next takes its place. The followers share what one has read, so
that a thousand of them cost the disk and the threads little more than one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import trio

from .reading import Page, size_of

if TYPE_CHECKING:
    from .runs import RunLogs

LOOK_EVERY = 0.25
"""Seconds between two looks."""

PAGES = 4
"""Events that are kept for followers that come to the same place a little later."""

Place: TypeAlias = "tuple[int, int]"
"""Where a reader stands: the byte, and the number of the event that it had last."""


class Elsewhere:
    """See the module.

    Args:
        logs: where the run lies.
        run: its id.
    """

    def __init__(self, logs: RunLogs, run: str) -> None:
        self._logs = logs
        self._run = run
        self._over = False
        self._size = -1
        self._pages: dict[Place, tuple[int, Page]] = {}
        self._at_work: dict[Hashable, trio.lowlevel.ParkingLot] = {}

    async def page(self, offset: int, after: int) -> Page:
        """The next events from a place, as soon as there are any; none when the run is over and all was read."""
        place = (offset, after)
        while True:
            over, size = self._over, self._size
            if size != offset:
                while (page := self._read_before(place, size)) is None:
                    await self._one_for_all(place, partial(self._read, place))
                if page.events:
                    return page
            if over:
                return Page([], offset)
            await self._one_for_all("look", self._look)

    def _read_before(self, place: Place, size: int) -> Page | None:
        """What was read there: events stay what they are, and that there are none holds for a log of that size."""
        looked_at, page = self._pages.get(place, (-2, None))
        return page if page is not None and (page.events or looked_at >= size) else None

    async def _read(self, place: Place) -> None:
        size = self._size
        page = await self._logs.page(self._run, *place)
        self._pages.pop(place, None)
        self._pages[place] = size, page
        while len(self._pages) > PAGES:
            del self._pages[next(iter(self._pages))]

    async def _look(self) -> None:
        """Look until it has grown, or is over. Whether it is over is asked first: what is not there then won't come."""
        while True:
            if self._size >= 0:
                await trio.sleep(LOOK_EVERY)
            over = await self._logs.is_over(self._run)
            size = await trio.to_thread.run_sync(size_of, self._logs.directory / self._run)
            if (over, size) != (self._over, self._size):
                self._over, self._size = over, size
                return

    async def _one_for_all(self, what: Hashable, work: Callable[[], Awaitable[None]]) -> None:
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
