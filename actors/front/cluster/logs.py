"""The logs of a process of a cluster: events are read from its database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....supervisors.cluster import telling
from ..control.logs.reading import LoggedEvent, Page, logged
from ..control.logs.runs import RunLogs

if TYPE_CHECKING:
    from .seat import Seat


class ClusterLogs(RunLogs):
    """See the module.

    Args:
        seat: reaches the database.
        directory, options: see `RunLogs`.
    """

    def __init__(self, seat: Seat, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        self.seat = seat

    def in_cluster(self, run: str) -> bool:
        """Whether a run's events are in the database."""
        raise NotImplementedError

    async def page(self, run: str, offset: int, after: int, most: int = 1_000_000) -> Page:
        """See `RunLogs`."""
        if not self.in_cluster(run):
            return await super().page(run, offset, after, most)
        lines = await self.seat.read(lambda db: telling.events_after(db, run, after))
        events = [event for line in lines if (event := logged(line)).seq > after]
        return Page(events[:most], offset)

    async def last(self, run: str) -> LoggedEvent | None:
        """See `RunLogs`."""
        if not self.in_cluster(run):
            return await super().last(run)
        line = await self.seat.read(lambda db: telling.last_event(db, run))
        return None if line is None else logged(line)
