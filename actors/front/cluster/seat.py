"""A process's place in a cluster: how it reaches the database, and what it is told."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from ....protocol.errors import CallboardError
from ....supervisors.cluster.database import ClusterAway, Database, NoCluster, Tidings, connected, driver, passes

if TYPE_CHECKING:
    import psycopg

LEASE = 10.0
"""Seconds for which a worker is alive that has said nothing."""

RETRY_EVERY = 0.5

T = TypeVar("T")

log = logging.getLogger("callboard.cluster")


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the cluster is, and what this process does in it.

    Attributes:
        dsn: of the database, as libpq has it.
        name: what this machine is called there; "" for the host's name.
        plays: it is a worker; else a gateway.
        has: labels of the machine, that runs may need.
        room: runs that it plays at a time.
        lease: seconds after which a worker that is silent is taken for dead; the same for all of a cluster.
    """

    dsn: str
    name: str = ""
    plays: bool = False
    has: tuple[str, ...] = ()
    room: int = 50
    lease: float = LEASE

    @property
    def called(self) -> str:
        """The name of this machine."""
        return self.name or socket.gethostname()


class Seat:
    """See the module.

    Attributes:
        options: see there.
        sign: of this very process.
        shown: what the database calls its connections; the last word is the sign, by which they are cut.
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
        """Do this with a connection, after what was asked for before. Raises `ClusterAway` if that can't be now."""
        return await self._database.do(work)

    async def of_lease(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """As `do`, for what must not wait for anything else: the lease."""
        return await self._leases.do(work)

    async def read(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """As `do`, in no order."""
        self._next += 1
        return await self._readers[self._next % len(self._readers)].do(work)

    async def at_last(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """As `do`, tried again and again while the database is away."""
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
        """Call `hear` with each kind of news and what it is about, and `look` when some may have been missed: with True
        if the connection is a new one."""
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
        """Let go of all connections."""
        for each in (self._database, self._leases, *self._readers):
            each.close()


def checked(options: ClusterOptions) -> ClusterOptions:
    """These, if a database can be reached with them. Blocks.

    Raises:
        NoCluster, ClusterAway: it can't.
    """
    try:
        connected(options.dsn, options.called, options.lease).close()
    except driver().Error as error:
        text = " ".join(str(error).split())
        if passes(error) and not isinstance(error, driver().ProgrammingError):
            raise ClusterAway(f"the database of the cluster can't be reached: {text}") from error
        raise NoCluster(f"the database of the cluster can't be used: {text}") from error
    return options


def as_ours(error: Exception) -> CallboardError:
    """An error as one of ours."""
    return error if isinstance(error, CallboardError) else CallboardError(f"crashed: {error!r}")


def tell_trouble(trouble: str) -> None:
    """Say in the log whether what runs do can be kept; "" if it can."""
    if trouble:
        log.warning("runs wait before they change anything, since it can't be kept: %s", trouble)
    else:
        log.warning("runs go on: what they do can be kept again")
