"""The logs of a gateway: runs of the cluster are among those that it knows, and followed as they are told."""

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
from ..control.logs.elsewhere import Elsewhere
from ..control.logs.reading import LoggedEvent, Page, logged
from .logs import ClusterLogs

if TYPE_CHECKING:
    from .seat import Seat

LOOK_EVERY = 1.0
"""Seconds between two looks at what has happened in a run, whatever is told."""

AGAIN_AFTER = 2.0
"""Seconds until a worker that could not be heard is asked again."""

UNHEARD = 30.0
"""Seconds after which a worker is heard no more that nobody follows."""

MOST_LIVE = 2_000
"""Events of a run that are kept for those who follow it."""

log = logging.getLogger("callboard.cluster")


class GatewayLogs(ClusterLogs):
    """See the module.

    Attributes:
        cluster: ids of the runs of the cluster that are known here.
        nursery: where workers are listened to; follow: listens to that of a run.
    """

    nursery: trio.Nursery
    follow: Callable[[str, int, Callable[[msgspec.Raw], None]], Awaitable[None]]

    def __init__(self, seat: Seat, directory: Path, **options: Any) -> None:
        super().__init__(seat, directory, **options)
        self.cluster: set[str] = set()
        self._news: dict[str, trio.Event] = {}

    def in_cluster(self, run: str) -> bool:
        """See `ClusterLogs`."""
        return run in self.cluster

    def stands(self, info: RunInfo) -> None:
        """A run of the cluster stands so."""
        self.cluster.add(info.run)
        self.past[info.run] = info

    def forget(self, run: str) -> None:
        """It is there no more."""
        self.cluster.discard(run)
        self.past.pop(run, None)
        self.told(run)

    def told(self, run: str) -> None:
        """There is news of a run."""
        if (news := self._news.pop(run, None)) is not None:
            news.set()

    def told_all(self) -> None:
        """There may be news of any."""
        for run in list(self._news):
            self.told(run)

    async def news(self, run: str) -> None:
        """Wait for news of a run, or until it is time to look."""
        with trio.move_on_after(LOOK_EVERY):
            await self._news.setdefault(run, trio.Event()).wait()

    def get(self, run: str, *, patient: bool = False) -> RunInfo | None:
        """See `RunLogs`."""
        return self.past.get(run) if run in self.cluster else super().get(run, patient=patient)

    async def is_over(self, run: str) -> bool:
        """See `RunLogs`."""
        if run not in self.cluster:
            return await super().is_over(run)
        return (info := self.past.get(run)) is None or info.over

    def elsewhere(self, run: str) -> Elsewhere:
        """See `RunLogs`."""
        if run not in self.cluster:
            return super().elsewhere(run)
        found = self._followed.get(run)
        if found is None:
            found = self._followed[run] = _Followed(self, run)
        return found

    async def look_again(self, ours: Collection[str]) -> None:
        """See `RunLogs`; what is known of the cluster comes from there."""
        await super().look_again({*ours, *self.cluster})


class _Followed(Elsewhere):
    """A run of the cluster, followed: by what its database has, and, where its worker can be reached, by what that says
    of it meanwhile."""

    def __init__(self, logs: GatewayLogs, run: str) -> None:
        super().__init__(logs, run)
        self._gateway = logs
        self._live: deque[LoggedEvent] = deque()
        self._from = 0
        self._listens = False
        self._again = trio.current_time()
        self._heard = trio.CancelScope()

    async def page(self, offset: int, after: int) -> Page:
        """See `Elsewhere`."""
        logs = self._gateway
        while True:
            self._heard.deadline = trio.current_time() + UNHEARD
            if after >= self._from and (live := [event for event in self._live if event.seq > after]):
                return Page(live, offset)
            over = await logs.is_over(self._run)  # before the look: what is not there then won't come
            page = await logs.page(self._run, offset, after)
            if page.events or over:
                return page
            if not self._listens and trio.current_time() >= self._again:
                self._listens, self._from = True, after
                logs.nursery.start_soon(self._listen)
            await logs.news(self._run)

    async def _listen(self) -> None:
        """Hear what its worker says, for as long as somebody follows."""
        try:
            with trio.CancelScope(deadline=trio.current_time() + UNHEARD) as self._heard:
                await self._gateway.follow(self._run, self._from, self._take)
        except CallboardError as error:
            log.debug("%s", error)
        finally:
            self._live.clear()
            self._listens, self._again = False, trio.current_time() + AGAIN_AFTER

    def _take(self, line: msgspec.Raw) -> None:
        self._live.append(logged(bytes(line)))
        if len(self._live) > MOST_LIVE:
            self._from = self._live.popleft().seq
        self._gateway.told(self._run)
