"""How a cluster stands, for who looks after it: its workers, its queue, its tables. Needs no server."""

from __future__ import annotations

import msgspec

from ....protocol.errors import ConfigError
from ....supervisors.cluster import telling, workers
from ....supervisors.cluster.database import ClusterAway, connected, driver, passes
from ....supervisors.cluster.tables import VERSION, check, migrate
from .seat import LEASE, ClusterOptions, checked


class WorkerShown(msgspec.Struct, frozen=True, kw_only=True):
    """A worker; `left` are the seconds of its lease, less than 0 for one that is taken for dead."""

    name: str
    has: tuple[str, ...]
    room: int
    runs: int
    left: float
    draining: bool
    version: str
    url: str


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        tables: the version of the tables; `known` is that of this callboard.
        queued, oldest, takeovers, fenced: as `telling.Figures` has them.
    """

    tables: int
    known: int = VERSION
    workers: list[WorkerShown]
    queued: int
    oldest: float
    takeovers: int
    fenced: int


def overview(dsn: str, *, makes_tables: bool) -> Overview:
    """Look at a cluster; with `makes_tables`, its tables are made, or made those of this version, first. Blocks.

    Raises:
        NoCluster, ClusterAway: the database can't be used, or not now.
        ConfigError: there are no tables.
        WrongTables: they are of a version that does not let this one use them.
    """
    options = checked(ClusterOptions(dsn=dsn))
    try:
        with connected(dsn, options.called, LEASE) as db:
            if makes_tables:
                migrate(db)
            there = check(db)
            if not there:
                raise ConfigError(
                    "this database has no tables of a cluster: the first worker or gateway makes them, or "
                    "callboard cluster --migrate"
                )
            figures = telling.figures(db)
            shown = [
                WorkerShown(
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
