"""The time limits of asks: one sleeper for all of a root, in place of a cancel scope for each.

A cancel scope costs about as much as the ask that it limits, and nearly all asks are answered long before. So a
limit is an entry in a heap, and one task sleeps until the first of them. Entries of asks that were answered stay where
they are until their time comes, or until there are so many of them that sorting them out is cheap per entry.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from .ref import Request
    from .root import Root

SOME = 1_000
"""Entries that are kept whatever became of their asks."""


@final
class Alarms:
    """Wakes askers whose time is up."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._entries: list[tuple[float, int, float, Request]] = []
        self._numbers = itertools.count()
        self._sort_out_at = SOME
        self._nap: trio.CancelScope | None = None
        self._watched = False

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, seconds: float, request: Request) -> None:
        """Let `request` expire, `seconds` from now, if it still waits then."""
        entries = self._entries
        if len(entries) >= self._sort_out_at:
            entries[:] = [entry for entry in entries if entry[3].waits]
            heapq.heapify(entries)
            self._sort_out_at = 2 * len(entries) + SOME
        when = trio.current_time() + seconds
        heapq.heappush(entries, (when, next(self._numbers), seconds, request))
        if not self._watched:
            self._watched = True
            self._root.nursery.start_soon(self._watch, name="alarms")
        elif entries[0][3] is request and self._nap is not None:
            self._nap.deadline = when

    async def _watch(self) -> None:
        entries = self._entries
        while True:
            with trio.CancelScope(deadline=entries[0][0] if entries else float("inf")) as self._nap:
                await trio.sleep_forever()
            now = trio.current_time()
            while entries and entries[0][0] <= now:
                _, _, seconds, request = heapq.heappop(entries)
                request.expire(seconds)
