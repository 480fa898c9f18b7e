"""Rate limits of providers, shared by the processes of a cluster that use the same API key for the same model.

A wait that a provider demands (`Retry-After`) is published to the other processes at once. Configured limits are
divided by the number of live workers, which a process with such limits reads every second. A gateway gets the same
share as a worker, for turns of sessions. Nothing is stored: a process that misses a notification learns from the next
refusal.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.errors import CallboardError
from ....supervisors.cluster import queue, workers

if TYPE_CHECKING:
    import psycopg

    from ...work.models.limiter import Gates
    from .membership import ClusterMembership

LOOK_EVERY = 1.0
"""Seconds between two reads of the number of live workers."""

log = logging.getLogger("callboard.cluster")


class ProviderLimits:
    """Exchange of provider limits.

    Args:
        gates: limiters of this process.
        seat: membership of this process.
    """

    def __init__(self, gates: Gates, seat: ClusterMembership) -> None:
        self._gates = gates
        self._seat = seat
        self._until: dict[str, float] = {}  # waits to be published
        self._news = trio.Event()
        gates.share(self._is_refused)

    def hear(self, about: list[str]) -> None:
        """Apply a wait published by any process."""
        if len(about) == 2:
            name, seconds = about
            self._gates.extend_cooldown(name, float(seconds))

    async def work(self) -> None:
        """Publish new waits, and divide configured limits, until cancelled."""
        while True:
            with trio.move_on_after(LOOK_EVERY):
                await self._news.wait()
            self._news = trio.Event()
            told, self._until = self._until, {}
            try:
                for name, until in told.items():
                    await self._seat.read(partial(_publish, name=name, seconds=until - trio.current_time()))
                if self._gates.limited:
                    self._gates.divide(max(1, await self._seat.read(workers.alive)))
            except CallboardError as error:  # harmless: the others learn from their own refusals
                log.debug("limits of providers can't be shared: %s", error)

    def _is_refused(self, name: str, seconds: float) -> None:
        self._until[name] = trio.current_time() + seconds
        self._news.set()


def _publish(db: psycopg.Connection[Any], name: str, seconds: float) -> None:
    queue.notify(db, "l", name, f"{seconds:.3f}")
