"""The logs of a gateway: runs of the cluster are among those that it knows, and followed as they are told."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from ....protocol.control.things import RunInfo
from ..control.logs.elsewhere import Elsewhere
from ..control.logs.reading import Page
from .logs import ClusterLogs

if TYPE_CHECKING:
    from .seat import Seat

LOOK_EVERY = 1.0
"""Seconds between two looks at what has happened in a run, whatever is told."""


class GatewayLogs(ClusterLogs):
    """See the module.

    Attributes:
        cluster: ids of the runs of the cluster that are known here.
    """

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
        return _Followed(self, run) if run in self.cluster else super().elsewhere(run)

    async def look_again(self, ours: Collection[str]) -> None:
        """See `RunLogs`; what is known of the cluster comes from there."""
        await super().look_again({*ours, *self.cluster})


class _Followed(Elsewhere):
    """A run of the cluster, followed."""

    def __init__(self, logs: GatewayLogs, run: str) -> None:
        super().__init__(logs, run)
        self._gateway = logs

    async def page(self, offset: int, after: int) -> Page:
        """See `Elsewhere`."""
        logs = self._gateway
        while True:
            over = await logs.is_over(self._run)  # before the look: what is not there then won't come
            page = await logs.page(self._run, offset, after)
            if page.events or over:
                return page
            await logs.news(self._run)
