"""Bounds the requests that are under way: of one subject, and of all.

A request without a place waits a little and is then refused, so that a burst is smoothed and a flood is not kept in
memory. The subject's own bound comes first: a request that waits for that takes no common place.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import final

import trio

from ....protocol.errors import Saturated

PATIENCE = 1.0
"""Seconds that a request waits for a place."""


@final
class Places:
    """Places for requests.

    Args:
        each: of one subject; `of_all` of all together.

    Attributes:
        taken: how many are in use.
    """

    def __init__(self, each: int, of_all: int) -> None:
        self.each = each
        self.of_all = of_all
        self.taken = 0
        self._of: dict[str, _Share] = {}
        self._lot = trio.lowlevel.ParkingLot()

    @property
    def free_share(self) -> float:
        """Which part of all places is free, from 0 to 1."""
        return max(0, self.of_all - self.taken) / self.of_all

    def resize(self, each: int, of_all: int) -> None:
        """Other bounds, for requests from now on."""
        self.each, self.of_all = each, of_all
        self._lot.unpark_all()
        for share in self._of.values():
            share.lot.unpark_all()

    @contextlib.asynccontextmanager
    async def place(self, subject: str | None) -> AsyncIterator[None]:
        """A place while the block lasts; without a `subject` only the bound of all counts.

        Raises:
            Saturated: there was none for a while.
        """
        async with contextlib.AsyncExitStack() as stack:
            scope = trio.CancelScope(deadline=trio.current_time() + PATIENCE)
            with scope:
                if subject is not None:
                    await stack.enter_async_context(self._own(subject))
                while self.taken >= self.of_all:
                    await self._lot.park()
                self.taken += 1
                stack.callback(self._leave)
            if scope.cancelled_caught:
                whose = f"{self.of_all} requests are" if self.taken >= self.of_all else f"{self.each} of yours are"
                raise Saturated(f"{whose} under way already, which is the most; try again in a second")
            yield

    def _leave(self) -> None:
        self.taken -= 1
        self._lot.unpark()

    @contextlib.asynccontextmanager
    async def _own(self, subject: str) -> AsyncIterator[None]:
        share = self._of.setdefault(subject, _Share())
        share.interested += 1
        try:
            while share.taken >= self.each:
                await share.lot.park()
            share.taken += 1
            try:
                yield
            finally:
                share.taken -= 1
                share.lot.unpark()
        finally:
            share.interested -= 1
            if not share.interested:
                del self._of[subject]


class _Share:
    """One subject's places; kept while one is held or waited for."""

    __slots__ = ("interested", "lot", "taken")

    def __init__(self) -> None:
        self.interested = 0
        self.taken = 0
        self.lot = trio.lowlevel.ParkingLot()
