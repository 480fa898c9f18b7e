"""Cluster membership of a process: its connections to the database, and notifications; overview of all members.

`overview` needs no membership, and no server: `callboard cluster` calls it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from ....protocol.errors import CallboardError, ConfigError
from ....supervisors.cluster import queries, workers
from ....supervisors.cluster.database import ClusterAway, Database, NoCluster, Tidings, connected, driver, passes
from ....supervisors.cluster.tables import VERSION, check, migrate

if TYPE_CHECKING:
    import psycopg


LEASE = 10.0
"""Seconds that a silent worker counts as alive."""

RETRY_EVERY = 0.5
"""Seconds between two attempts while the database is away."""

T = TypeVar("T")

log = logging.getLogger("callboard.cluster")


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Address of the cluster, and the role of this process.

    Attributes:
        dsn: database, in libpq's notation.
        name: name of this machine in the cluster; "" for the host name.
        plays: true for a worker, false for a gateway.
        has: labels of the machine, which runs may require.
        room: maximum number of concurrent runs.
        lease: seconds after which a silent worker is declared dead; equal for all processes of a cluster.
    """

    dsn: str
    name: str = ""
    plays: bool = False
    has: tuple[str, ...] = ()
    room: int = 50
    lease: float = LEASE

    @property
    def called(self) -> str:
        """Configured name of this machine, else its host name."""
        return self.name or socket.gethostname()


class ClusterMembership:
    """Connections of this process to the cluster's database.

    Four connections: one for ordered work, one for the lease, and two for reads; `listen` opens its own. So neither a
    slow query nor a queue of writes can delay the lease.

    Attributes:
        options: see `ClusterOptions`.
        sign: unique name of this process.
        shown: application name of its connections. The last word is the sign, by which the database can end them.
    """

    def __init__(self, options: ClusterOptions, sign: str) -> None:
        self.options = options
        self.sign = sign
        self.shown = f"{options.called[:24]} {sign}"
        self._database, self._leases, *self._readers = (
            Database(options.dsn, self.shown, options.lease) for _ in range(4)
        )
        self._next = 0

    async def do(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Execute `work` with a connection, after all earlier calls. Raises `ClusterAway` if the database is away."""
        return await self._database.do(work)

    async def of_lease(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Execute `work` like `do`, on the connection reserved for the lease."""
        return await self._leases.do(work)

    async def read(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Execute `work` like `do`, without an order between calls."""
        # Two readers in turn: one slow query delays only every other read.
        self._next += 1
        return await self._readers[self._next % len(self._readers)].do(work)

    async def at_last(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Execute `work` like `do`, and retry while the database is away."""
        told = False
        while True:
            try:
                return await self.do(work)
            except ClusterAway as error:
                if not told:
                    log.warning("%s", error)
                    told = True
                await trio.sleep(RETRY_EVERY)

    async def listen(self, hear: Callable[[str, list[str]], None], look: Callable[[bool], None]) -> None:
        """Call `hear` with the kind and subjects of each notification, and `look` when some may have been missed.

        The argument of `look` is True if the connection is new. Never returns.
        """
        options = self.options
        tidings = Tidings(options.dsn, self.shown, options.lease)
        try:
            while True:
                news = await tidings.news()
                if news is None:
                    look(tidings.anew)
                    continue
                for each in news:
                    kind, _, about = each.partition(" ")
                    hear(kind, about.split())
        finally:
            tidings.close()

    def close(self) -> None:
        """Close all connections."""
        for each in (self._database, self._leases, *self._readers):
            each.close()


def checked(options: ClusterOptions) -> ClusterOptions:
    """Return the options after a successful connection to the database. Blocking.

    Raises:
        NoCluster, ClusterAway: the database cannot be used, or not now.
    """
    try:
        connected(options.dsn, options.called, options.lease).close()
    except driver().Error as error:
        text = " ".join(str(error).split())
        # A ProgrammingError, such as an invalid DSN, does not pass by waiting.
        if passes(error) and not isinstance(error, driver().ProgrammingError):
            raise ClusterAway(f"the database of the cluster can't be reached: {text}") from error
        raise NoCluster(f"the database of the cluster can't be used: {text}") from error
    return options


def as_ours(error: Exception) -> CallboardError:
    """Return a `CallboardError` unchanged, and any other error as one whose text begins with `crashed:`."""
    return error if isinstance(error, CallboardError) else CallboardError(f"crashed: {error!r}")


def log_storage_trouble(trouble: str) -> None:
    """Log whether runs can be stored; "" means that they can again."""
    if trouble:
        log.warning("runs are paused before their next effect, because the journal can't be written: %s", trouble)
    else:
        log.warning("runs continue: the journal can be written again")


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
        queued, oldest, takeovers, fenced: as in `queries.ClusterFigures`.
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
        ConfigError: there are no tables, or they cannot be used (permissions, damage).
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
                    "this database has no cluster tables; the first worker or gateway creates them, or run "
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
            raise ConfigError(f"the cluster tables can't be used: {' '.join(str(error).split())}") from error
        raise ClusterAway(f"the database of the cluster can't be reached: {' '.join(str(error).split())}") from error
    return Overview(
        tables=there,
        workers=shown,
        queued=figures.queued,
        oldest=round(figures.oldest, 1),
        takeovers=figures.takeovers,
        fenced=figures.fenced,
    )
