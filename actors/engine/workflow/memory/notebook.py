"""Ordered texts with optional vectors, in one file that several processes can use concurrently.

The file is an SQLite database: writes are atomic, writers wait for each other, and a killed process leaves no
damage. Without a file the texts are lost when the notebook is closed. All work runs in one thread at a time, never
in the event loop.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from .....protocol.errors import ConfigError

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds to wait for another writing process."""

_APPLICATION = 0x43424D4E  # "CBMN"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT UNIQUE, text TEXT NOT NULL, model TEXT, vector BLOB, made REAL
);
"""


class Note(msgspec.Struct, frozen=True):
    """Stored text.

    Attributes:
        digest: unique key: a second text with the same digest is ignored; None allows duplicates.
        model: the embedding model of its vector.
        vector: single-precision floats.
    """

    text: str
    digest: str | None = None
    model: str | None = None
    vector: bytes | None = None


class Notebook:
    """SQLite file of ordered notes.

    Args:
        path: the file; it and its directory are created at the first use. None for no file.
        most: most stored texts; the oldest are deleted.
        name: name of the memory in messages.
    """

    def __init__(self, path: Path | None, *, most: int, name: str) -> None:
        self._path = path
        self._most = most
        self._name = name
        self._turn = trio.CapacityLimiter(1)
        self._connection: sqlite3.Connection | None = None

    async def add(self, note: Note) -> None:
        """Store a text, and delete the oldest ones beyond the limit.

        Raises:
            ConfigError: the file cannot be used.
        """
        await self._in_thread(lambda connection: self._add(connection, note))

    async def latest(self, count: int) -> list[Note]:
        """Return the newest texts, oldest first. Raises like `add`."""
        query = "SELECT id, text, digest, model, vector FROM notes ORDER BY id DESC LIMIT ?"
        rows = await self._in_thread(lambda connection: connection.execute(query, (count,)).fetchall())
        return [Note(*row[1:]) for row in reversed(rows)]

    async def all(self) -> dict[int, Note]:
        """Return every text by its id, oldest first. Raises like `add`."""
        query = "SELECT id, text, digest, model, vector FROM notes ORDER BY id"
        rows = await self._in_thread(lambda connection: connection.execute(query).fetchall())
        return {row[0]: Note(*row[1:]) for row in rows}

    async def set_vectors(self, model: str, vectors: Mapping[int, bytes]) -> None:
        """Replace the vectors of texts by vectors of another model. Raises like `add`."""
        rows = [(model, vector, number) for number, vector in vectors.items()]

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("UPDATE notes SET model = ?, vector = ? WHERE id = ?", rows)

        await self._in_thread(write)

    def close(self) -> None:
        """Close the file; repeated calls are harmless. It must not be in use."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await trio.to_thread.run_sync(self._safely, work, limiter=self._turn)

    def _safely(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._open())
        except (sqlite3.Error, OSError) as error:
            where = f" ({self._path})" if self._path is not None else ""
            why = "the file is not a memory of Callboard" if "not a database" in str(error) else str(error)
            raise ConfigError(f"the memory '{self._name}'{where} can't be used: {why}") from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.touch(mode=0o600)  # before SQLite creates it world-readable
            file = ":memory:" if self._path is None else self._path
            connection = sqlite3.connect(file, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            try:
                _make_ready(connection)
            except BaseException:  # also on cancellation, so that the file does not stay open
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _add(self, connection: sqlite3.Connection, note: Note) -> None:
        row = (note.digest, note.text, note.model, note.vector, time.time())
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "INSERT OR IGNORE INTO notes (digest, text, model, vector, made) VALUES (?, ?, ?, ?, ?)", row
            )
            connection.execute(
                "DELETE FROM notes WHERE id IN (SELECT id FROM notes ORDER BY id DESC LIMIT -1 OFFSET ?)", (self._most,)
            )


def _make_ready(connection: sqlite3.Connection) -> None:
    if _is_ours(connection):
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if _is_ours(connection):  # checked again under the lock: another process may have created the schema
            return
        if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
            raise sqlite3.DatabaseError("file is not a database of notes")
        connection.execute(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")


def _is_ours(connection: sqlite3.Connection) -> bool:
    ((application,),) = connection.execute("PRAGMA application_id")
    return bool(application == _APPLICATION)
