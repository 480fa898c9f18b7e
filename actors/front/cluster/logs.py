"""Logs of a process in a cluster, which reads events from the database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....supervisors.cluster import queries
from ..control.logs.reading import LoggedEvent, LogPage, logged
from ..control.logs.runs import RunLogs

if TYPE_CHECKING:
    from .membership import ClusterMembership


class ClusterLogs(RunLogs):
    """Logs that read the events of cluster runs from the database, and other events from files.

    Args:
        seat: connection to the database.
        directory, options: see `RunLogs`.
    """

    def __init__(self, seat: ClusterMembership, directory: Path, **options: Any) -> None:
        super().__init__(directory, **options)
        self.seat = seat

    def in_cluster(self, run: str) -> bool:
        """Return True if the run's events are in the database."""
        raise NotImplementedError

    async def page(self, run: str, offset: int, after: int, most: int = 1_000_000) -> LogPage:
        if not self.in_cluster(run):
            return await super().page(run, offset, after, most)
        lines = await self.seat.read(lambda db: queries.events_after(db, run, after))
        events = [event for line in lines if (event := logged(line)).seq > after]
        return LogPage(events[:most], offset)

    async def last(self, run: str) -> LoggedEvent | None:
        if not self.in_cluster(run):
            return await super().last(run)
        line = await self.seat.read(lambda db: queries.last_event(db, run))
        return None if line is None else logged(line)
