"""Cluster overview for operators: workers, queue, and tables. Needs no server."""

from __future__ import annotations

import msgspec

from ....protocol.errors import ConfigError
from ....supervisors.cluster import queries, workers
from ....supervisors.cluster.database import ClusterAway, connected, driver, passes
from ....supervisors.cluster.tables import VERSION, check, migrate
from .membership import LEASE, ClusterOptions, checked


class WorkerOverview(msgspec.Struct, frozen=True, kw_only=True):
    """State of a worker. `left` is the remaining time of its lease in seconds, negative if it was declared dead."""

    name: str
    has: tuple[str, ...]
    room: int
    runs: int
    left: float
    draining: bool
    version: str
    url: str


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """State of a cluster.

    Attributes:
        tables: version of the tables.
        known: version that this program uses.
        queued, oldest, takeovers, fenced: as in `queries.Figures`.
    """

    tables: int
    known: int = VERSION
    workers: list[WorkerOverview]
    queued: int
    oldest: float
    takeovers: int
    fenced: int


def overview(dsn: str, *, makes_tables: bool) -> Overview:
    """Return the state of a cluster; with `makes_tables`, first create its tables or migrate them. Blocking.

    Raises:
        NoCluster, ClusterAway: the database cannot be used, or not now.
        ConfigError: there are no tables.
        WrongTables: the tables have a version that this program cannot use.
    """
    options = checked(ClusterOptions(dsn=dsn))
    try:
        with connected(dsn, options.called, LEASE) as db:
            if makes_tables:
                migrate(db)
            # Reads the version only: an overview must not change the tables unless asked to.
            there = check(db)
            if not there:
                raise ConfigError(
                    "this database has no tables of a cluster: the first worker or gateway makes them, or "
                    "callboard cluster --migrate"
                )
            figures = queries.figures(db)
            shown = [
                WorkerOverview(
                    name=each.name,
                    has=each.has,
                    room=each.room,
                    runs=each.runs,
                    left=round(each.left, 1),
                    draining=each.draining,
                    version=each.version,
                    url=each.url,
                )
                for each in workers.workers(db)
            ]
    except driver().Error as error:
        if not passes(error):
            raise ConfigError(f"the tables of the cluster can't be used: {' '.join(str(error).split())}") from error
        raise ClusterAway(f"the database of the cluster can't be reached: {' '.join(str(error).split())}") from error
    return Overview(
        tables=there,
        workers=shown,
        queued=figures.queued,
        oldest=round(figures.oldest, 1),
        takeovers=figures.takeovers,
        fenced=figures.fenced,
    )
