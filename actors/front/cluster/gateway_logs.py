"""Logs of a gateway: cluster runs appear like local ones, and their events come from the database and from workers.

The database has an event only after a commit, and has no deltas. So a follower also subscribes to the run's worker, and
reads from the database whatever it has missed there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.control.things import RunInfo
from ....protocol.errors import CallboardError
from ..control.logs.reading import LoggedEvent, LogPage, logged
from ..control.logs.remote_log import RemoteLog
from .logs import ClusterLogs

if TYPE_CHECKING:
    from .membership import ClusterMembership

LOOK_EVERY = 1.0
"""Seconds between two reads of a run's events without a notification."""

AGAIN_AFTER = 2.0
"""Seconds before a new attempt to subscribe at a worker."""

UNHEARD = 30.0
"""Seconds without a follower after which the subscription at the worker ends."""

MOST_LIVE = 2_000
"""Events of a run that are buffered for its followers."""

log = logging.getLogger("callboard.cluster")


class GatewayLogs(ClusterLogs):
    """Logs of a gateway.

    Attributes:
        cluster: ids of the known cluster runs.
        nursery: nursery for subscriptions at workers.
        follow: subscribes to a run at its worker.
    """

    nursery: trio.Nursery
    follow: Callable[[str, int, Callable[[msgspec.Raw], None]], Awaitable[None]]

    def __init__(self, seat: ClusterMembership, directory: Path, **options: Any) -> None:
        super().__init__(seat, directory, **options)
        self.cluster: set[str] = set()
        self._news: dict[str, trio.Event] = {}

    def in_cluster(self, run: str) -> bool:
        """Return True for a known run of the cluster."""
        return run in self.cluster

    def stands(self, info: RunInfo) -> None:
        """Set the summary of a cluster run."""
        self.cluster.add(info.run)
        self.past[info.run] = info

    def forget(self, run: str) -> None:
        """Forget a deleted run."""
        self.cluster.discard(run)
        self.past.pop(run, None)
        self.told(run)

    def told(self, run: str) -> None:
        """Wake the tasks that wait for news of a run."""
        if (news := self._news.pop(run, None)) is not None:
            news.set()

    def changed_all(self) -> None:
        """Wake all tasks that wait for news."""
        for run in list(self._news):
            self.told(run)

    async def news(self, run: str) -> None:
        """Wait for news of a run, at most `LOOK_EVERY` seconds."""
        with trio.move_on_after(LOOK_EVERY):
            await self._news.setdefault(run, trio.Event()).wait()

    def get(self, run: str, *, patient: bool = False) -> RunInfo | None:
        """Return a run; a cluster run from memory, without blocking."""
        return self.past.get(run) if run in self.cluster else super().get(run, patient=patient)

    async def is_over(self, run: str) -> bool:
        """Return True if the run has ended or was deleted."""
        if run not in self.cluster:
            return await super().is_over(run)
        return (info := self.past.get(run)) is None or info.over

    def elsewhere(self, run: str) -> RemoteLog:
        """Return the shared reader of the run's events."""
        if run not in self.cluster:
            return super().elsewhere(run)
        found = self._followed.get(run)
        if found is None:
            found = self._followed[run] = _Followed(self, run)
        return found

    async def look_again(self, ours: Collection[str]) -> None:
        """Update the index of local runs; `ClusterGateway` updates cluster runs."""
        await super().look_again({*ours, *self.cluster})


class _Followed(RemoteLog):
    """Shared reader of a cluster run: events from the database, and live ones from the worker if it can be reached."""

    def __init__(self, logs: GatewayLogs, run: str) -> None:
        super().__init__(logs, run)
        self._gateway = logs
        self._live: deque[LoggedEvent] = deque()
        self._from = 0
        self._listens = False
        self._again = trio.current_time()
        self._heard = trio.CancelScope()

    async def page(self, offset: int, after: int) -> LogPage:
        """Return the next events after a number; none once the run is over and all were read."""
        logs = self._gateway
        while True:
            self._heard.deadline = trio.current_time() + UNHEARD
            # `_live` has all events after `_from`, without gaps; an older reader must use the database.
            if after >= self._from and (live := [event for event in self._live if event.seq > after]):
                return LogPage(live, offset)
            over = await logs.is_over(self._run)  # before the read: events that are missing after the end never appear
            page = await logs.page(self._run, offset, after)
            if page.events or over:
                return page
            if not self._listens and trio.current_time() >= self._again:
                self._listens, self._from = True, after
                logs.nursery.start_soon(self._listen)
            await logs.news(self._run)

    async def _listen(self) -> None:
        """Receive events from the run's worker while followers exist."""
        try:
            with trio.CancelScope(deadline=trio.current_time() + UNHEARD) as self._heard:
                await self._gateway.follow(self._run, self._from, self._take)
        except CallboardError as error:
            log.debug("%s", error)
        finally:
            # Gaps may follow: readers continue from the database until a new subscription begins.
            self._live.clear()
            self._listens, self._again = False, trio.current_time() + AGAIN_AFTER

    def _take(self, line: msgspec.Raw) -> None:
        self._live.append(logged(bytes(line)))
        if len(self._live) > MOST_LIVE:
            self._from = self._live.popleft().seq
        self._gateway.told(self._run)
