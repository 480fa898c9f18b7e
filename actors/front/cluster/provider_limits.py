"""What providers allow is shared by the processes of a cluster: those with the same key for the same model.

How long a provider wants one of them to wait (`Retry-After`) is told to the others at once. What the settings allow is
divided among the workers that live, which is looked at every second by those whose settings limit anything. A gateway
has as much as a worker, for turns of sessions. Nothing of it is kept: who was not told finds out from a refusal.
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
    from .seat import Seat

LOOK_EVERY = 1.0

log = logging.getLogger("callboard.cluster")


class ProviderLimits:
    """See the module.

    Args:
        gates: the limiters of this process; seat: its own.
    """

    def __init__(self, gates: Gates, seat: Seat) -> None:
        self._gates = gates
        self._seat = seat
        self._until: dict[str, float] = {}  # what has to be told
        self._news = trio.Event()
        gates.share(self._is_refused)

    def hear(self, about: list[str]) -> None:
        """What another process has told, or this one."""
        if len(about) == 2:
            name, seconds = about
            self._gates.told(name, float(seconds))

    async def work(self) -> None:
        """Tell what is news, and divide."""
        while True:
            with trio.move_on_after(LOOK_EVERY):
                await self._news.wait()
            self._news = trio.Event()
            told, self._until = self._until, {}
            try:
                for name, until in told.items():
                    await self._seat.read(partial(_tell, name=name, seconds=until - trio.current_time()))
                if self._gates.limited:
                    self._gates.divide(max(1, await self._seat.read(workers.alive)))
            except CallboardError as error:  # they find out by themselves
                log.debug("limits of providers can't be shared: %s", error)

    def _is_refused(self, name: str, seconds: float) -> None:
        self._until[name] = trio.current_time() + seconds
        self._news.set()


def _tell(db: psycopg.Connection[Any], name: str, seconds: float) -> None:
    queue.tell(db, "l", name, f"{seconds:.3f}")
