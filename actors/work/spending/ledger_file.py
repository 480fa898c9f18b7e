"""Ledger of daily limits in the SQLite file of the book, for all processes of a user.

The file is in WAL mode with `synchronous = NORMAL`. Committed rows outlive the process; only a power loss of the
machine can lose them. A failed commit has written nothing for certain, so this store ignores numbers of transactions.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, final

from .accounts import NOTHING, Amount
from .book import made
from .ledger import KEPT_DAYS, Others, with_sums, without

if TYPE_CHECKING:
    from .ledger import Batch
    from .today import Today

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

    elsewhere = False

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
