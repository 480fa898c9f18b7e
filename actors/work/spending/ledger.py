"""Ledger of daily limits: two tables that stay correct after `kill -9`.

They are in the SQLite file of the book (`LedgerFile`), or in the database of a cluster (`front/cluster/spending`).

    ledger(day, key, tokens, cost)               spending of a day; the key "" is the sum of all subjects
    held(process, id, key, day, tokens, cost)    upper bounds of requests in flight

Before a request is sent, a row of `held` for each of its keys is committed. After the request, one transaction deletes
the row and adds the actual amount. A process that is killed in between leaves the row, which counts at its upper bound
from then on. So both tables together never show less than providers have charged.

One transaction contains all pending changes: while a thread writes it, the next one collects changes. Requests wait for
their transaction. Amounts of ended requests wait a moment (`GATHER`), or are written with the next request. If the
answer of a store is lost, the outcome of the transaction is unknown. So each transaction has a number, and each amount
carries the number of the first transaction that should have written it. A store that can lose answers applies each
number once.

The spending and reservations of other processes are all rows of the store minus the rows of this process. Each
transaction returns them for its keys. So spending before the start, other processes, and rows of crashed processes need
no separate treatment.

A row of `held` has the day on which it was written, or the day that has begun since: each process moves its own rows.
As that takes a moment, rows of yesterday count in the first minute of a day, too (`GRACE`). Rows of earlier days belong
to dead processes; their amounts are moved into the ledger of their day.

The file is in WAL mode with `synchronous = NORMAL`. Committed rows outlive the process; only a power loss of the
machine can lose them. A failed commit has written nothing for certain, so `LedgerFile` ignores numbers of transactions.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

import msgspec
import trio

from .accounts import NOTHING, Amount, Hold
from .book import TROUBLE, made, reason_of

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref, Root

# --- days, from 00:00 UTC to 00:00 UTC ------------------------------------------------------------------------

DAY = 86_400
GRACE = 60.0
"""Seconds at the start of a day in which requests in flight may still be recorded under the day before."""


class Today(msgspec.Struct, frozen=True):
    """Moment in the form that a ledger needs.

    Attributes:
        day: `2026-11-23`.
        since: rows of `held` count from this day on: `day`, or the day before in the first minute.
        yesterday: rows of `held` older than this belong to dead processes.
        left: seconds until the next day.
    """

    day: str
    since: str
    yesterday: str
    left: float


def today_of(number: int, now: float) -> Today:
    """Return the moment for a day and a time.

    Args:
        number: the day, counted from 1970.
        now: time of the wall clock, in seconds since 1970.
    """
    elapsed = now - number * DAY
    day, yesterday = date_of(number), date_of(number - 1)
    early = 0 <= elapsed < GRACE  # Not if the clock was set back: processes have moved their rows already.
    return Today(day=day, since=yesterday if early else day, yesterday=yesterday, left=DAY - elapsed)


def date_of(number: int) -> str:
    """Return the date of a day counted from 1970: `2026-11-23`."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number)).date().isoformat()


# --- the writer -----------------------------------------------------------------------------------------------

GATHER = 0.1
"""Seconds for which amounts of ended requests are collected before they are written."""

RETRY_EVERY = 5.0
"""Seconds between two attempts to write after a failure."""

WRITE_WITHIN = 5.0
"""Seconds that one transaction may take."""

KEPT_DAYS = 60
"""Days with rows that a ledger retains in addition to the new day: a clock that leaps ahead must not clear it."""

SILENT = "no answer"
"""Message for a store on another machine that did not answer within `WRITE_WITHIN`."""

_MOST_TOKENS, _MOST_COST = 10**15, 1e12  # limits of one request; sums of many such requests still fit into the columns

log = logging.getLogger("callboard.usage")


class Others(msgspec.Struct, frozen=True):
    """Spending and reservations of other processes for a key."""

    spent: Amount
    held: Amount


Tell = Callable[[str, Mapping[str, Others]], None]
"""Called after each transaction with the day, and the figures of other processes by key."""


Sums = dict[tuple[int, str, str], Amount]
"""Amounts by the number of the first transaction that should have written them, day and key."""


class LedgerUnwritten(Exception):
    """The ledger can't be written now; the text says why."""


class LedgerStore(Protocol):
    """Storage of a ledger. Its methods block: call them in a thread, one at a time.

    Attributes:
        name: name for callers, without paths: `its usage.db`.
        place: location of the store, for the log.
        is_remote: the store is on another machine and may be silent for long; an abandoned write may still succeed.
    """

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def is_remote(self) -> bool: ...

    def written(self, now: Today, batch: Batch) -> Mapping[str, Others]:
        """Execute one transaction.

        Returns:
            the figures of other processes for the keys of the batch.

        Raises:
            Away, OSError, sqlite3.Error: the store can't be written.
        """

    def close(self) -> None:
        """Close open connections."""


@final
class Ledger:
    """Writer of the ledger: collects changes and executes one transaction at a time.

    Args:
        root: the writer is an actor of it, spawned with the first request.
        store: storage of the ledger.
        today: returns the current moment.
        tell: called with the figures of other processes.
    """

    def __init__(self, root: Root, store: LedgerStore, *, today: Callable[[], Today], tell: Tell) -> None:
        self.store = store
        self._root = root
        self._today = today
        self._tell = tell
        self._thread = trio.CapacityLimiter(1)
        self._writer: Ref[Any] | None = None
        self._pending = Batch(1)
        self._some, self._urgent = trio.Event(), trio.Event()
        self._last_id = self._open = 0
        self._troubled = self._closing = self._closed = False

    async def commit(self, keys: Iterable[str], most: Amount) -> int:
        """Write the upper bound of a request before it is sent. Return the id for `end`.

        Raises:
            LedgerUnwritten: the bound could not be written.
        """
        self._last_id += 1
        id = self._last_id
        self._open += 1
        most = bounded(most)
        self._pending.held += [(id, key, most.tokens, most.cost) for key in keys]
        try:
            await self._transaction()
        except BaseException:  # including cancellation: the row may have been written all the same
            self.end(id)
            raise
        return id

    def end(self, id: int) -> None:
        """Remove the reservation of a request; the caller has just added its actual amount with `add`."""
        self._open -= 1
        self._pending.ended.append(id)
        self._gather()

    def add(self, day: str, key: str, amount: Amount) -> None:
        """Count an amount under a day and a key."""
        sums, entry, amount = self._pending.sums, (self._pending.number, day, key), bounded(amount)
        before = sums.get(entry, NOTHING)
        sums[entry] = Amount(before.tokens + amount.tokens, before.cost + amount.cost)
        self._gather()

    async def query(self, keys: Iterable[str], *, all_of_today: bool = False) -> None:
        """Query the figures of other processes; `tell` receives them.

        Args:
            keys: keys to query.
            all_of_today: also query all keys that the store has for today.

        Raises:
            LedgerUnwritten: the store can't be used.
        """
        self._pending.looks.update(keys)
        self._pending.looks_at_all |= all_of_today
        await self._transaction()

    async def aclose(self) -> None:
        """Write the remaining changes, even if the time of the root is up, because there is no later write."""
        if self._writer is None:
            self._closed = True
            return
        self._closing = True
        # Loop: the writer may put back changes that it could not write while this call waits for the thread.
        while (self._pending.ended or self._pending.sums) and await self._write():
            pass
        self._closed = True  # A writer that outlives this call must not open the store again.
        with self._shield():
            await trio.to_thread.run_sync(self.store.close, limiter=self._thread, abandon_on_cancel=True)

    def _shield(self) -> contextlib.AbstractContextManager[trio.CancelScope]:
        return trio.move_on_after(WRITE_WITHIN, shield=True) if self._closing else self._root.shield(WRITE_WITHIN)

    async def _transaction(self) -> None:
        batch = self._pending
        if self._closed:
            raise LedgerUnwritten(batch.trouble)
        self._gather()
        self._urgent.set()
        await batch.over.wait()
        if batch.trouble:
            raise LedgerUnwritten(batch.trouble)

    def _gather(self) -> None:
        if self._closed:
            return
        self._some.set()
        if self._writer is None:
            self._writer = self._root.spawn(self._write_when_due, name="ledger", link=False)

    async def _write_when_due(self, _: Actor) -> None:
        while True:
            # Wakes at the end of the day while requests are open: their rows of `held` must be moved to the new day.
            with trio.move_on_after(self._today().left if self._open else float("inf")):
                await self._some.wait()
            with trio.move_on_after(GATHER):
                await self._urgent.wait()
            if not await self._write():
                with trio.move_on_after(RETRY_EVERY):
                    await self._urgent.wait()

    async def _write(self) -> bool:
        """Execute one transaction with all pending changes. Return whether that succeeded."""
        if self._closed:
            return False
        batch, self._pending = self._pending, Batch(self._pending.number + 1)
        self._some, self._urgent = trio.Event(), trio.Event()
        now, written, store = self._today(), False, self.store
        others: Mapping[str, Others] = {}
        try:
            with self._shield():
                others = await trio.to_thread.run_sync(
                    store.written, now, batch, limiter=self._thread, abandon_on_cancel=store.is_remote
                )
                written = True
        except Exception as error:  # noqa: BLE001 - requests must neither be sent unwritten nor wait for ever
            self._put_back(batch)
            batch.trouble = reason_of(error)
            self._is_troubled(error)
            return False
        except BaseException:  # cancelled before the thread started
            self._put_back(batch)
            raise
        else:
            # The time was up: before the thread started, or the store on another machine did not answer.
            if not written:
                self._put_back(batch)
                if store.is_remote:
                    batch.trouble = SILENT
                    self._is_troubled(SILENT)
                return False
            if self._troubled:
                log.warning("the spending under daily limits can be written to %s again", store.place)
            self._troubled, batch.trouble = False, ""
            self._tell(now.day, others)
            return True
        finally:
            batch.over.set()

    def _is_troubled(self, error: Exception | str) -> None:
        if not self._troubled:
            text = (
                "the spending under daily limits can't be written to %s (%s): requests under these limits are "
                "refused until it can"
            )
            log.error(text, self.store.place, error, exc_info=not isinstance(error, (*TROUBLE, str)))
        self._troubled = True

    def _put_back(self, batch: Batch) -> None:
        pending = self._pending
        pending.ended = [*batch.ended, *pending.ended]
        pending.sums = {**batch.sums, **pending.sums}
        if pending.ended or pending.sums:
            self._some.set()


@final
class Batch:
    """Changes for the next transaction.

    Attributes:
        number: number of the transaction, higher than all before.
        held: rows to insert: id, key, tokens, cost.
        ended: ids of requests that have ended.
        sums: amounts to add, including amounts that earlier transactions could not write, or may have written.
        looks: keys whose figures of other processes are queried; `looks_at_all` queries all keys of the day.
        over: set when the transaction has succeeded or failed; after a failure, `trouble` says why.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.held: list[tuple[int, str, int, float]] = []
        self.ended: list[int] = []
        self.sums: Sums = {}
        self.looks: set[str] = set()
        self.looks_at_all = False
        self.over: trio.Event = trio.Event()
        self.trouble = "the server is shutting down"


@final
class WrittenHold(Hold):
    """Reservation that is also in the ledger."""

    __slots__ = ("_hold", "_id", "_ledger")

    def __init__(self, hold: Hold, ledger: Ledger, id: int) -> None:
        self._hold = hold
        self._ledger = ledger
        self._id: int | None = id

    def spend(self, amount: Amount, *, turns: int = 1, estimated: bool = False) -> None:
        id, self._id = self._id, None
        if id is not None:
            self._hold.spend(amount, turns=turns, estimated=estimated)  # the day accounts add the amount to the ledger
            self._ledger.end(id)


def bounded(amount: Amount) -> Amount:
    """Clip the amount to the range of the columns; NaN counts as the maximum."""
    # the order matters: `min` with NaN second returns the bound
    return Amount(min(_MOST_TOKENS, amount.tokens), min(_MOST_COST, amount.cost))


def with_sums(own: Mapping[str, Amount], day: str, sums: Sums, after: int = 0) -> dict[str, Amount]:
    """Return this process's own amounts of a day, plus the sums with a number higher than `after`."""
    total = dict(own)
    for (number, of, key), amount in sums.items():
        if of == day and number > after:
            before = total.get(key, NOTHING)
            total[key] = Amount(before.tokens + amount.tokens, before.cost + amount.cost)
    return total


def without(all: Amount, own: Amount) -> Amount:
    """Return the amount of other processes: the total minus the own amount, at least 0."""
    cost = round(all.cost - own.cost, 12)  # sums of fractions depend on the order of addition
    return Amount(max(0, all.tokens - own.tokens), max(0.0, cost))


# --- the ledger in the SQLite file of the book ----------------------------------------------------------------

_PATIENCE = 2.0  # seconds to wait for another process's lock on the file

_LEDGER = """
CREATE TABLE IF NOT EXISTS ledger (
    day TEXT NOT NULL, key TEXT NOT NULL, tokens INTEGER NOT NULL, cost REAL NOT NULL, PRIMARY KEY (day, key)
) WITHOUT ROWID
"""

_HELD = """
CREATE TABLE IF NOT EXISTS held (
    process TEXT NOT NULL, id INTEGER NOT NULL, key TEXT NOT NULL,
    day TEXT NOT NULL, tokens INTEGER NOT NULL, cost REAL NOT NULL, PRIMARY KEY (process, id, key)
) WITHOUT ROWID
"""

_ADD = """
INSERT INTO ledger VALUES (?, ?, ?, ?)
ON CONFLICT (day, key) DO UPDATE SET tokens = tokens + excluded.tokens, cost = cost + excluded.cost
"""

_FOLD = """
INSERT INTO ledger SELECT day, key, SUM(tokens), SUM(cost) FROM held WHERE day < ? GROUP BY day, key
ON CONFLICT (day, key) DO UPDATE SET tokens = tokens + excluded.tokens, cost = cost + excluded.cost
"""

_PRUNE = "DELETE FROM ledger WHERE day < (SELECT DISTINCT day FROM ledger ORDER BY day DESC LIMIT 1 OFFSET ?)"
# Two ranges around this process's own rows, which may be thousands, so that the primary key is used.
_OTHERS = """
SELECT key, SUM(tokens), SUM(cost) FROM (
    SELECT * FROM held WHERE process < ? UNION ALL SELECT * FROM held WHERE process > ?
) WHERE day >= ? GROUP BY key
"""

_KEYS = "SELECT key FROM ledger WHERE day = ? UNION SELECT key FROM held WHERE day >= ?"


@final
class LedgerFile:
    """A `LedgerStore` in an SQLite file.

    Args:
        path: path of the file.
    """

    is_remote = False

    def __init__(self, path: Path) -> None:
        self.name = f"its {path.name}"
        self.place = str(path)
        self._path = path
        self._process = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._db: sqlite3.Connection | None = None
        self._stamp: tuple[int, int] | None = None
        self._day = ""
        self._own: dict[str, Amount] = {}

    def close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):  # the connection is given up in any case
                self._db.close()
            self._db = None

    def written(self, now: Today, batch: Batch) -> dict[str, Others]:
        """Execute one transaction; any error rolls it back and closes the file."""
        db = self._opened()
        try:
            db.execute("BEGIN IMMEDIATE")
            # Also for the first transaction of this process, and after the file was replaced.
            if now.day != self._day:
                self._new_day(db, now)
            db.executemany(
                "INSERT INTO held (process, id, key, day, tokens, cost) VALUES (?, ?, ?, ?, ?, ?)",
                [(self._process, id, key, now.day, tokens, cost) for id, key, tokens, cost in batch.held],
            )
            db.executemany("DELETE FROM held WHERE process = ? AND id = ?", [(self._process, id) for id in batch.ended])
            db.executemany(_ADD, [(*entry, amount.tokens, amount.cost) for (_, *entry), amount in batch.sums.items()])
            keys = {*batch.looks, *(key for _, key, _, _ in batch.held)}
            if batch.looks_at_all:
                keys.update(key for (key,) in db.execute(_KEYS, (now.day, now.since)))
            own = with_sums(self._own if now.day == self._day else {}, now.day, batch.sums)
            spent = {key: _spent(db, now.day, key, own.get(key, NOTHING)) for key in keys}
            held = {key: Amount(*sums) for key, *sums in db.execute(_OTHERS, (self._process, self._process, now.since))}
            db.execute("COMMIT")
        except BaseException:  # on any error, cancellation included: no transaction may stay open
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            self.close()
            raise
        self._day, self._own = now.day, own
        return {key: Others(spent[key], held.get(key, NOTHING)) for key in keys}

    def _opened(self) -> sqlite3.Connection:
        with contextlib.suppress(FileNotFoundError):
            if self._db is not None and _stamp(self._path) == self._stamp:
                return self._db
        self.close()
        made(self._path)
        db = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            # locked by another process: the next opening sets the mode
            with contextlib.suppress(sqlite3.OperationalError):
                db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(_LEDGER)
            db.execute(_HELD)
            if (stamp := _stamp(self._path)) != self._stamp:  # A replaced file has no rows of this process.
                self._day, self._own, self._stamp = "", {}, stamp
        except BaseException:  # on any error: the file must not stay open
            db.close()
            raise
        self._db = db
        return db

    def _new_day(self, db: sqlite3.Connection, now: Today) -> None:
        """Move the own rows of `held` to today, and prune the ledger.

        Rows of other processes older than yesterday are added to the ledger: their processes are dead.
        """
        db.execute("UPDATE held SET day = ? WHERE process = ? AND day < ?", (now.day, self._process, now.day))
        db.execute(_FOLD, (now.yesterday,))
        db.execute("DELETE FROM held WHERE day < ?", (now.yesterday,))
        db.execute(_PRUNE, (KEPT_DAYS - 1,))


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _spent(db: sqlite3.Connection, day: str, key: str, own: Amount) -> Amount:
    """Return the spending of other processes for a key."""
    row = db.execute("SELECT tokens, cost FROM ledger WHERE day = ? AND key = ?", (day, key)).fetchone()
    return NOTHING if row is None else without(Amount(*row), own)
