"""A connection to the database of a cluster, and what its errors mean. Blocking, but for `Tidings`.

What passes by itself (`Unwritten`): the database is not there, starts, is full, fails over, or gave up on us. What does
not (`JournalBroken`): it has other tables than ours, or refuses what we may do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from ...protocol.kernel.errors import CallboardError, JournalBroken
from ..journal.row import Unwritten
from .tables import CHANNEL

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

CONNECT_WITHIN = 5
"""Seconds."""

ENDED = ("08", "57P", "25P03", "25006")
"""Beginnings of SQLSTATE after which another connection may do at once: the server has ended this one, as it went away
or we were silent in the midst of a transaction, or it is a standby by now."""

NOT_NOW = (*ENDED, "40", "53", "55", "57", "58")
"""And those after which another try may do: a conflict, no room, a lock, a query that was cancelled, the disk."""

T = TypeVar("T")


class NoCluster(CallboardError):
    """The database of the cluster can't be used."""

    code = "no_cluster"
    exit_code = 3


class ClusterAway(CallboardError):
    """The database of the cluster can't be reached now."""

    code = "cluster_away"
    exit_code = 6


def driver() -> Any:
    """psycopg.

    Raises:
        NoCluster: it is not installed, or finds no libpq.
    """
    try:
        import psycopg
    except ImportError as error:
        if "libpq" in str(error) or "pq wrapper" in str(error):
            raise NoCluster(
                "psycopg finds no libpq, PostgreSQL's client library: apt install libpq5, "
                "or pip install 'psycopg[binary]'"
            ) from None
        raise NoCluster("a cluster needs an extra that is not installed: pip install 'callboard[cluster]'") from None
    return psycopg


def connected(dsn: str, name: str, lease: float) -> psycopg.Connection[Any]:
    """A connection.

    Args:
        dsn: as libpq has it: `postgresql://user@host/db?sslmode=verify-full`, or `host=... dbname=...`.
        name: what the database calls us.
        lease: seconds that a worker has; neither end holds on for longer to a connection that leads nowhere.

    Raises:
        psycopg.Error: there is none.
    """
    within = max(1000, int(lease * 700))
    db: psycopg.Connection[Any] = driver().connect(
        dsn,
        autocommit=True,
        application_name=f"callboard {name}"[:63],
        client_encoding="UTF8",
        connect_timeout=CONNECT_WITHIN,
        keepalives_idle=max(1, math.ceil(lease / 4)),
        keepalives_interval=max(1, math.ceil(lease / 4)),
        keepalives_count=2,
        tcp_user_timeout=within,
    )
    try:
        for key, value in (("idle_in_transaction_session_timeout", within), ("lock_timeout", within)):
            db.execute("select set_config(%s, %s, false)", (key, str(value)))
    except BaseException:  # whatever it was, it must not stay open
        db.close()
        raise
    return db


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What the driver raises as what it means.

    Raises:
        Unwritten: another try may do.
        JournalBroken: none will.
    """
    psycopg = driver()
    try:
        yield
    except psycopg.Error as error:
        text = " ".join(str(error).split()) or type(error).__name__
        if passes(error):
            raise Unwritten(f"the database of the cluster: {text}") from error
        raise JournalBroken(f"the database of the cluster refuses what is written: {text}") from error


def passes(error: Any) -> bool:
    """Whether another try may do."""
    state = getattr(error, "sqlstate", None)
    if state is None:  # no answer of a server: the connection
        return isinstance(error, driver().OperationalError | driver().InterfaceError)
    return str(state).startswith(NOT_NOW)


class Database:
    """A connection for one user at a time, opened when it is used and again after an error.

    Args:
        dsn, name, lease: see `connected`.
    """

    def __init__(self, dsn: str, name: str, lease: float) -> None:
        self.dsn = dsn
        self.name = name
        self.lease = lease
        self._db: psycopg.Connection[Any] | None = None
        self._turn = trio.CapacityLimiter(1)

    async def do(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Do this in a thread, with a connection of its own; what it returns.

        Raises:
            ClusterAway: the database can't be used now.
            NoCluster: or not as it is.
        """
        # A database that has stopped in the midst of a statement must not keep us from ending.
        return await trio.to_thread.run_sync(self.blocking, work, limiter=self._turn, abandon_on_cancel=True)

    def blocking(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """As `do`, in the thread of the caller; one at a time.

        Raises: as `do`.
        """
        psycopg = driver()
        fresh = self._db is None or self._db.closed
        while True:
            try:
                if self._db is None or self._db.closed:
                    self._db, fresh = connected(self.dsn, self.name, self.lease), True
                return work(self._db)
            except psycopg.Error as error:
                self.close()
                text = " ".join(str(error).split()) or type(error).__name__
                if not passes(error):
                    raise NoCluster(f"the database of the cluster can't be used: {text}") from error
                if fresh or not (error.sqlstate is None or error.sqlstate.startswith(ENDED)):
                    raise ClusterAway(f"the database of the cluster can't be reached: {text}") from error
                fresh = True  # it was closed while nobody used it: once more, with another

    def close(self) -> None:
        """Let go of the connection. Blocks next to never."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(Exception):  # it is of no use any more, whatever it says
                db.close()


class Tidings:
    """What is told in the cluster (`tables.CHANNEL`), for one who listens.

    Args:
        dsn, name, lease: see `connected`.
        look_every: seconds after which who listens looks for himself, whatever was told.

    Attributes:
        anew: whether the connection has just been made: the database may have been another one before.
    """

    def __init__(self, dsn: str, name: str, lease: float, look_every: float = 1.0) -> None:
        self._how = dsn, name, lease
        self._look_every = look_every
        self.anew = False
        self._db: psycopg.Connection[Any] | None = None

    async def news(self) -> list[str] | None:
        """What was told since the last time, as soon as there is something; None if it is time to look for oneself,
        or some may have been missed."""
        psycopg = driver()
        self.anew = False
        try:
            if self._db is None:
                self.anew = True
                self._db = await trio.to_thread.run_sync(_listening, *self._how)
                return None
            with trio.move_on_after(self._look_every):
                while True:
                    if found := [each.payload for each in self._db.notifies(timeout=0)]:
                        return found
                    await trio.lowlevel.wait_readable(self._db.fileno())
        except (psycopg.Error, OSError):
            self.close()
            await trio.sleep(self._look_every)
        return None

    def close(self) -> None:
        """Listen no more."""
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _listening(dsn: str, name: str, lease: float) -> psycopg.Connection[Any]:
    db = connected(dsn, name, lease)
    db.execute(f"listen {CHANNEL}")
    return db
