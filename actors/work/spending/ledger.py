"""The ledger of daily limits: tables beside those of the book, in the same SQLite file, right after `kill -9`.

    ledger(day, key, tokens, cost)               what was spent on a day; the key "" is that of all together
    held(process, id, key, day, tokens, cost)    what requests under way may come to at most

Before a request goes out, a row of `held` for each of its keys is committed. After it, one transaction deletes the row
and adds what the request came to. A process that is killed in between leaves the row, which counts at its bound from
then on. So both tables together never say less than providers have charged.

One transaction takes all that waits for it: while it is written by a thread, the next gathers. Requests wait for
theirs; what they came to waits a moment (`GATHER`) or goes along with the next. The file is in WAL mode with
`synchronous = NORMAL`: what was committed outlives the process, and may be lost only if the machine itself loses power.

What others have spent and hold is all that is in the file without what this process has put there. Each transaction
says so, of the keys that it is about. So what was there at the start, other processes, and what crashed ones have left
are one thing.

A row of `held` has the day on which it was written, or that which has begun since: each process moves its own. As that
takes a moment, rows of yesterday count in the first minute of a day, too (`GRACE`). What is left of days before that
belongs to processes that have died; it is put into the ledger of its day.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec
import trio

from .accounts import NOTHING, Amount
from .book import made

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref, Root

GATHER = 0.1
"""Seconds in which what requests came to gathers before it is written."""

RETRY_EVERY = 5.0
"""Seconds between two tries to write what could not be written."""

WRITE_WITHIN = 5.0
"""Seconds for one transaction."""

KEPT_DAYS = 60
"""Days that the ledger has beside the new one, the newest with rows: a clock that leaps ahead must not clear it."""

_PATIENCE = 2.0  # seconds for other processes to be done with the file
_MOST_TOKENS, _MOST_COST = 10**15, 1e12  # of one request; sums of this many still fit into the columns

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
# Both sides of our own rows, which may be thousands.
_OTHERS = """
SELECT key, SUM(tokens), SUM(cost) FROM (
    SELECT * FROM held WHERE process < ?1 UNION ALL SELECT * FROM held WHERE process > ?1
) WHERE day >= ?2 GROUP BY key
"""

_KEYS = "SELECT key FROM ledger WHERE day = ? UNION SELECT key FROM held WHERE day >= ?"

log = logging.getLogger("callboard.usage")


class Today(msgspec.Struct, frozen=True):
    """A moment as the ledger sees it.

    Attributes:
        day: `2026-11-23`.
        since: rows of `held` count from this day on: `day`, or the one before in the first minute.
        yesterday: rows of `held` older than this belong to processes that have died.
        left: seconds until the next day.
    """

    day: str
    since: str
    yesterday: str
    left: float


class Others(msgspec.Struct, frozen=True):
    """What others than this process have spent and hold of a key."""

    spent: Amount
    held: Amount


Tell = Callable[[str, Mapping[str, Others]], None]
"""Told a day, and what others have of it by key, after each transaction."""


class Unwritten(Exception):
    """The ledger can't be written now; the text says why."""


@final
class Ledger:
    """See the module.

    Args:
        root: what writes is an actor of it, from the first request on.
        path: of the file.
        today: tells what time it is.
        tell: told what others have.
    """

    def __init__(self, root: Root, path: Path, *, today: Callable[[], Today], tell: Tell) -> None:
        self.path = path
        self._root = root
        self._today = today
        self._tell = tell
        self._file = _File(path, f"{os.getpid()}-{secrets.token_hex(6)}")
        self._thread = trio.CapacityLimiter(1)
        self._writer: Ref[Any] | None = None
        self._pending = _Pending()
        self._some, self._urgent = trio.Event(), trio.Event()
        self._last_id = self._open = 0
        self._troubled = self._closing = False

    async def commit(self, keys: Iterable[str], most: Amount) -> int:
        """Write what a request may come to, before it goes out; returns what to `end` after it.

        Raises:
            Unwritten: it could not be written.
        """
        self._last_id += 1
        id = self._last_id
        self._open += 1
        most = bounded(most)
        self._pending.held += [(id, key, most.tokens, most.cost) for key in keys]
        try:
            await self._transaction()
        except BaseException:  # cancelled, too: it may have been written all the same
            self.end(id)
            raise
        return id

    def end(self, id: int) -> None:
        """A request is over; what it came to was added just before."""
        self._open -= 1
        self._pending.ended.append(id)
        self._gather()

    def add(self, day: str, key: str, amount: Amount) -> None:
        """Count what was spent."""
        before, amount = self._pending.sums.get((day, key), NOTHING), bounded(amount)
        self._pending.sums[day, key] = Amount(before.tokens + amount.tokens, before.cost + amount.cost)
        self._gather()

    async def look(self, keys: Iterable[str], *, all_of_today: bool = False) -> None:
        """Have `tell` told what others have now.

        Args:
            keys: of which.
            all_of_today: and of all that the file has something of today.

        Raises:
            Unwritten: the file can't be used.
        """
        self._pending.looks.update(keys)
        self._pending.looks_at_all |= all_of_today
        await self._transaction()

    async def aclose(self) -> None:
        """Write what is left, also when the root's time is up: what it came to can't be written later."""
        if self._writer is None:
            return
        self._closing = True
        # More than once, as the writer may put back what it could not write while this waits for the thread.
        while (self._pending.ended or self._pending.sums) and await self._write():
            pass
        with self._shield():
            await trio.to_thread.run_sync(self._file.close, limiter=self._thread)

    def _shield(self) -> contextlib.AbstractContextManager[trio.CancelScope]:
        return trio.move_on_after(WRITE_WITHIN, shield=True) if self._closing else self._root.shield(WRITE_WITHIN)

    async def _transaction(self) -> None:
        """Wait for the next transaction."""
        batch = self._pending
        self._gather()
        self._urgent.set()
        await batch.over.wait()
        if batch.trouble:
            raise Unwritten(batch.trouble)

    def _gather(self) -> None:
        self._some.set()
        if self._writer is None:
            self._writer = self._root.spawn(self._write_when_due, name="ledger", link=False)

    async def _write_when_due(self, _: Actor) -> None:
        while True:
            with trio.move_on_after(self._today().left if self._open else float("inf")):
                await self._some.wait()
            with trio.move_on_after(GATHER):
                await self._urgent.wait()
            if not await self._write():
                with trio.move_on_after(RETRY_EVERY):
                    await self._urgent.wait()

    async def _write(self) -> bool:
        """One transaction with all that waits for it; whether that was possible."""
        batch, self._pending = self._pending, _Pending()
        self._some, self._urgent = trio.Event(), trio.Event()
        now, written = self._today(), False
        others: Mapping[str, Others] = {}
        try:
            with self._shield():
                others = await trio.to_thread.run_sync(self._file.written, now, batch, limiter=self._thread)
                written = True
        except Exception as error:  # whatever it is, requests must neither go out unwritten nor wait for ever
            self._put_back(batch)
            batch.trouble = _reason(error)
            if not self._troubled:
                text = "what is spent of daily limits can't be written to %s (%s): requests under them are refused"
                log.error(text, self.path, error, exc_info=not isinstance(error, OSError | sqlite3.Error))
            self._troubled = True
            return False
        except BaseException:  # cancelled before the thread began
            self._put_back(batch)
            raise
        else:
            if not written:  # the time was up before the thread began
                self._put_back(batch)
                return False
            if self._troubled:
                log.warning("what is spent of daily limits can be written to %s again", self.path)
            self._troubled, batch.trouble = False, ""
            self._tell(now.day, others)
            return True
        finally:
            batch.over.set()

    def _put_back(self, batch: _Pending) -> None:
        pending = self._pending
        pending.ended = [*batch.ended, *pending.ended]
        for entry, amount in batch.sums.items():
            since = pending.sums.get(entry, NOTHING)
            pending.sums[entry] = Amount(since.tokens + amount.tokens, since.cost + amount.cost)
        if pending.ended or pending.sums:
            self._some.set()


@final
class _Pending:
    """What the next transaction is about.

    Attributes:
        held: rows to commit: id, key, tokens, cost.
        ended: ids of requests that are over.
        sums: what was spent, by day and key.
        looks: keys of which is asked what others have; `looks_at_all`: of all keys of the day.
        over: set when it is written, or was not: then `trouble` says why.
    """

    def __init__(self) -> None:
        self.held: list[tuple[int, str, int, float]] = []
        self.ended: list[int] = []
        self.sums: dict[tuple[str, str], Amount] = {}
        self.looks: set[str] = set()
        self.looks_at_all = False
        self.over = trio.Event()
        self.trouble = "the server is about to end"


@final
class _File:
    """The file, as threads use it, one at a time."""

    def __init__(self, path: Path, process: str) -> None:
        self._path = path
        self._process = process
        self._db: sqlite3.Connection | None = None
        self._stamp: tuple[int, int] | None = None
        self._day = ""
        self._own: dict[str, Amount] = {}

    def close(self) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):  # it is given up in any case
                self._db.close()
            self._db = None

    def written(self, now: Today, batch: _Pending) -> dict[str, Others]:
        """One transaction.

        Returns:
            what others have of the keys that it is about.
        """
        db = self._opened()
        try:
            db.execute("BEGIN IMMEDIATE")
            if now.day != self._day:
                self._new_day(db, now)
            db.executemany(
                "INSERT INTO held (process, id, key, day, tokens, cost) VALUES (?, ?, ?, ?, ?, ?)",
                [(self._process, id, key, now.day, tokens, cost) for id, key, tokens, cost in batch.held],
            )
            db.executemany("DELETE FROM held WHERE process = ? AND id = ?", [(self._process, id) for id in batch.ended])
            db.executemany(_ADD, [(*entry, amount.tokens, amount.cost) for entry, amount in batch.sums.items()])
            keys = {*batch.looks, *(key for _, key, _, _ in batch.held)}
            if batch.looks_at_all:
                keys.update(key for (key,) in db.execute(_KEYS, (now.day, now.since)))
            own = _together(self._own if now.day == self._day else {}, now.day, batch.sums)
            spent = {key: _spent(db, now.day, key, own.get(key, NOTHING)) for key in keys}
            held = {key: Amount(*sums) for key, *sums in db.execute(_OTHERS, (self._process, now.since))}
            db.execute("COMMIT")
        except BaseException:  # whatever it was, half a transaction must not stay open
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
            with contextlib.suppress(sqlite3.OperationalError):  # locked: it is in that mode the next time
                db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(_LEDGER)
            db.execute(_HELD)
            if (stamp := _stamp(self._path)) != self._stamp:  # another file than before has nothing of ours
                self._day, self._own, self._stamp = "", {}, stamp
        except BaseException:  # whatever it was, the file must not stay open
            db.close()
            raise
        self._db = db
        return db

    def _new_day(self, db: sqlite3.Connection, now: Today) -> None:
        """What is ours and goes on is today's; what others left two days ago or earlier is spent."""
        db.execute("UPDATE held SET day = ? WHERE process = ? AND day < ?", (now.day, self._process, now.day))
        db.execute(_FOLD, (now.yesterday,))
        db.execute("DELETE FROM held WHERE day < ?", (now.yesterday,))
        db.execute(_PRUNE, (KEPT_DAYS - 1,))


def bounded(amount: Amount) -> Amount:
    """The amount as far as the columns go; what is no number counts as the most."""
    return Amount(min(_MOST_TOKENS, amount.tokens), min(_MOST_COST, amount.cost))  # in this order: NaN is not less


def _reason(error: Exception) -> str:
    """Why it can't be written, without the path: callers are told it."""
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _together(own: Mapping[str, Amount], day: str, sums: Mapping[tuple[str, str], Amount]) -> dict[str, Amount]:
    """What is ours of a day when these sums are added."""
    total = dict(own)
    for (of, key), amount in sums.items():
        if of == day:
            before = total.get(key, NOTHING)
            total[key] = Amount(before.tokens + amount.tokens, before.cost + amount.cost)
    return total


def _spent(db: sqlite3.Connection, day: str, key: str, own: Amount) -> Amount:
    """What others have spent of a key."""
    row = db.execute("SELECT tokens, cost FROM ledger WHERE day = ? AND key = ?", (day, key)).fetchone()
    if row is None:
        return NOTHING
    cost = round(row[1] - own.cost, 12)  # sums of fractions differ by the order in which they were made
    return Amount(max(0, row[0] - own.tokens), max(0.0, cost))
