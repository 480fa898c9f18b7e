"""Connections to the database of a cluster, and the classification of its errors. Blocking, except for `Tidings`.

Temporary errors (`Unwritten`): the database is unreachable, starts, is full, fails over, or has closed the connection.
Permanent ones (`JournalBroken`): its tables are of another version, or permissions are missing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from ...protocol.kernel.errors import CallboardError, JournalBroken
from ..installation import install_command
from ..journal.row import Unstorable, Unwritten
from .tables import CHANNEL

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

CONNECT_WITHIN = 5
"""Seconds to establish a connection."""

# 57P: the last message of a server that crashed or was promoted waits in an idle connection, so the next statement
# fails with a SQLSTATE although no server answers. 25P03: this process was stopped (SIGSTOP) within a transaction.
ENDED = ("08", "57P", "25P03", "25006")
"""Prefixes of SQLSTATE after which a new connection may work at once: the server has closed this one (shutdown, or
silence within a transaction), or it has become a standby."""

NOT_NOW = (*ENDED, "40", "53", "55", "57", "58")
"""Prefixes of SQLSTATE after which a later attempt may work: conflict, no room, lock, cancelled query, disk."""

T = TypeVar("T")


class NoCluster(CallboardError):
    """The database of the cluster can't be used as it is."""

    code = "no_cluster"
    exit_code = 3


class ClusterAway(CallboardError):
    """The database of the cluster can't be reached at the moment."""

    code = "cluster_away"
    exit_code = 6


def driver() -> Any:
    """Import and return psycopg.

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
        raise NoCluster(f"a cluster needs an extra that is not installed; run: {install_command('cluster')}") from None
    return psycopg


def connected(dsn: str, name: str, lease: float) -> psycopg.Connection[Any]:
    """Open a connection.

    Args:
        dsn: in libpq's format: `postgresql://user@host/db?sslmode=verify-full`, or `host=... dbname=...`.
        name: application name in the database.
        lease: seconds of a worker's lease; both ends give up a dead connection within that time.

    Raises:
        psycopg.Error: the connection failed.
    """
    # Keepalives give up after 3/4 of the lease: an idle quarter, and two unanswered probes. Linux sends none while sent
    # data is unacknowledged; `tcp_user_timeout` covers that case.
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
        # PostgreSQL's `set` takes no parameters. `set_config(..., false)` does the same for the session.
        for key, value in (("idle_in_transaction_session_timeout", within), ("lock_timeout", within)):
            db.execute("select set_config(%s, %s, false)", (key, str(value)))
    except BaseException:  # whatever it was, the connection must not stay open
        db.close()
        raise
    return db


@contextlib.contextmanager
def journal_errors() -> Iterator[None]:
    """Raise errors of the driver as errors of the journal.

    Raises:
        Unwritten: a later attempt may work.
        Unstorable: a value can never be stored; without it an attempt will work.
        JournalBroken: no attempt will work.
    """
    psycopg = driver()
    try:
        yield
    except psycopg.Error as error:
        text = " ".join(str(error).split()) or type(error).__name__
        if passes(error):
            raise Unwritten(f"the database of the cluster: {text}") from error
        if isinstance(error, psycopg.DataError):
            raise Unstorable(f"the database of the cluster refuses a value: {text}") from error
        raise JournalBroken(f"the database of the cluster refuses what is written: {text}") from error


def passes(error: Any) -> bool:
    """Return whether a later attempt may work."""
    state = getattr(error, "sqlstate", None)
    if state is None:  # not an answer of the server: the connection failed
        return isinstance(error, driver().OperationalError | driver().InterfaceError)
    return str(state).startswith(NOT_NOW)


class Database:
    """A connection for one caller at a time, opened at first use and again after an error.

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
        """Call `work` with the connection, in a thread, and return its result.

        Raises:
            ClusterAway: the database can't be used at the moment.
            NoCluster: it can't be used as it is.
        """
        # Abandoned on cancellation: a database that hangs within a statement must not keep the process from ending.
        return await trio.to_thread.run_sync(self.blocking, work, limiter=self._turn, abandon_on_cancel=True)

    def blocking(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Call `work` like `do`, in the caller's thread; one at a time. Raises like `do`."""
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
                fresh = True  # the server closed it while it was idle: once more, with a new one

    def close(self) -> None:
        """Close the connection. Practically never blocks."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(Exception):  # the connection is discarded, so its errors do not matter
                db.close()


class Tidings:
    """Notifications of the cluster (`tables.CHANNEL`), for one listener.

    Args:
        dsn, name, lease: see `connected`.
        look_every: seconds after which the listener should poll, even without a notification.

    Attributes:
        anew: True if the connection is new, so that the database may be another one than before (failover).
    """

    def __init__(self, dsn: str, name: str, lease: float, look_every: float = 1.0) -> None:
        self._how = dsn, name, lease
        self._look_every = look_every
        self.anew = False
        self._db: psycopg.Connection[Any] | None = None

    async def news(self) -> list[str] | None:
        """Wait for notifications and return them; None if the caller should poll, since some may have been missed."""
        psycopg = driver()
        self.anew = False
        try:
            if self._db is None:
                # PostgreSQL delivers nothing that was sent before `listen`, so the caller polls once.
                self.anew = True
                self._db = await trio.to_thread.run_sync(_listening, *self._how)
                return None
            with trio.move_on_after(self._look_every):
                while True:
                    # Before the wait: a notification that libpq has read already does not make the socket readable
                    # again.
                    if found := [each.payload for each in self._db.notifies(timeout=0)]:
                        return found
                    await trio.lowlevel.wait_readable(self._db.fileno())
        except (psycopg.Error, OSError):
            self.close()
            await trio.sleep(self._look_every)
        return None

    def close(self) -> None:
        """Close the connection."""
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _listening(dsn: str, name: str, lease: float) -> psycopg.Connection[Any]:
    db = connected(dsn, name, lease)
    db.execute(f"listen {CHANNEL}")
    return db
