"""Embedding cache: vectors by model and text, in one SQLite file that all processes of a user share.

The key is a checksum of the model and the text, so the file reveals nothing about the texts. Vectors are stored in half
precision, which does not change rankings noticeably. When the file exceeds its limit, the least recently used vectors
are removed. It is only a cache: a broken file is replaced by an empty one, and a process that can't read or write it
works without it.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio

from .....protocol.events import Warned
from ....io.directories import cache_dir, private_directory
from ...models.call import Emitter
from .embedder import Embedder, normalised

if TYPE_CHECKING:
    from .embedder import Vectors

T = TypeVar("T")
R = TypeVar("R")

MOST = 1 << 30
"""Default limit in bytes, for vectors and the overhead of their rows."""

OF_A_ROW = 120
"""Overhead of a row in bytes, without its vector; the triggers below contain the same number."""

KEPT = 0.9
"""Fraction of the limit that remains after old vectors are removed."""

TOUCHED_EVERY = 3600
"""Seconds in which the use of a vector is recorded at most once, so that most reads do not write."""

_CLOSE_WITHIN = 5.0
"""Seconds to wait for the thread that uses the file, and for closing it."""

_PATIENCE = 10.0
_IN_A_QUERY = 500
_FORGOTTEN_AT_ONCE = 500

_VERSION = 1
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL, used INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_use ON vectors (used);
CREATE TABLE IF NOT EXISTS total (one INTEGER PRIMARY KEY CHECK (one = 1), bytes INTEGER NOT NULL);
INSERT OR IGNORE INTO total VALUES (1, 0);
CREATE TRIGGER IF NOT EXISTS came AFTER INSERT ON vectors
BEGIN UPDATE total SET bytes = bytes + length(NEW.vector) + 120; END;
CREATE TRIGGER IF NOT EXISTS changed AFTER UPDATE OF vector ON vectors
BEGIN UPDATE total SET bytes = bytes + length(NEW.vector) - length(OLD.vector); END;
CREATE TRIGGER IF NOT EXISTS went AFTER DELETE ON vectors
BEGIN UPDATE total SET bytes = bytes - length(OLD.vector) - 120; END;
PRAGMA user_version = 1;
COMMIT;
"""


def default_path(environ: Mapping[str, str]) -> Path:
    """Return `$XDG_CACHE_HOME/callboard/embeddings.sqlite`."""
    return cache_dir(environ) / "embeddings.sqlite"


def key_of(model: str, text: str, *, query: bool) -> bytes:
    """Return the cache key of a text."""
    role = "query" if query else "text"
    return hashlib.sha256(f"{model}\0{role}\0{text}".encode(errors="surrogatepass")).digest()


class EmbeddingCache:
    """Cache in one file. It works in one thread at a time, never in the event loop.

    Args:
        path: path of the file; it and its directory are created on demand.
        most: limit in bytes.
        now: returns the time in seconds.
    """

    def __init__(self, path: Path, *, most: int = MOST, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._most = most
        self._now = now
        self._limiter = trio.CapacityLimiter(1)
        self._connection: sqlite3.Connection | None = None

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cached vectors by key.

        Raises:
            sqlite3.Error, OSError: the file can't be used.
        """
        return await trio.to_thread.run_sync(self._safely, self._get, keys, limiter=self._limiter)

    async def put(self, vectors: Mapping[bytes, bytes]) -> None:
        """Store vectors. An existing vector is replaced only if its length differs.

        Raises:
            sqlite3.Error, OSError: the file can't be used.
        """
        await trio.to_thread.run_sync(self._safely, self._put, vectors, limiter=self._limiter)

    async def aclose(self) -> None:
        """Close the file; the next use opens it again."""
        with trio.move_on_after(_CLOSE_WITHIN, shield=True):
            await trio.to_thread.run_sync(self._close, limiter=self._limiter, abandon_on_cancel=True)

    # --- in the thread

    def _safely(self, work: Callable[[sqlite3.Connection, T], R], what: T) -> R:
        """Execute `work`, and repeat it on an empty file if the file is broken."""
        try:
            return work(self._open(), what)
        except sqlite3.OperationalError:  # locked, disk full, no permission: the file itself is valid
            raise
        except sqlite3.DatabaseError:
            self._close()
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            return work(self._open(), what)

    def _get(self, connection: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        stale: list[bytes] = []
        now = int(self._now())
        for first in range(0, len(keys), _IN_A_QUERY):
            part = keys[first : first + _IN_A_QUERY]
            marks = ",".join("?" * len(part))
            query = f"SELECT key, vector, used FROM vectors WHERE key IN ({marks})"  # noqa: S608  (only marks)
            for key, vector, used in connection.execute(query, part):
                found[key] = vector
                if now - used >= TOUCHED_EVERY:
                    stale.append(key)
        if stale:
            with _writing(connection):
                connection.executemany("UPDATE vectors SET used = ? WHERE key = ?", [(now, key) for key in stale])
        return found

    def _put(self, connection: sqlite3.Connection, vectors: Mapping[bytes, bytes]) -> None:
        now = int(self._now())
        with _writing(connection):
            connection.executemany(
                "INSERT INTO vectors VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET vector = excluded.vector"
                " WHERE length(vector) != length(excluded.vector)",
                [(key, vector, now) for key, vector in vectors.items()],
            )
            if _total(connection) > self._most:
                self._forget(connection)

    def _forget(self, connection: sqlite3.Connection) -> None:
        while (excess := _total(connection) - int(self._most * KEPT)) > 0:
            query = "SELECT rowid, length(vector) FROM vectors ORDER BY used, rowid LIMIT ?"
            gone: list[tuple[int]] = []
            for row, size in connection.execute(query, (_FORGOTTEN_AT_ONCE,)).fetchall():
                if excess <= 0:
                    break
                excess -= size + OF_A_ROW
                gone.append((row,))
            connection.executemany("DELETE FROM vectors WHERE rowid = ?", gone)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            private_directory(self.path.parent)
            self._connection = _connected(self.path)
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        ((version,),) = connection.execute("PRAGMA user_version")
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"{path} has the format of another version of Callboard")
        if version == 0:
            connection.executescript(_SCHEMA)
    except BaseException:  # on any error, the file must be closed
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode. If another process does the same, SQLite fails at once despite the timeout, so retry here."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


@contextmanager
def _writing(connection: sqlite3.Connection) -> Iterator[None]:
    """Open a write transaction.

    It takes the write lock at its start: a read transaction that becomes a writer later may fail without waiting.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:  # on any error, cancellation included, roll back
        if connection.in_transaction:  # if the disk is full, SQLite has rolled back already
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _total(connection: sqlite3.Connection) -> int:
    ((total,),) = connection.execute("SELECT bytes FROM total")
    return int(total)


PART = 512
"""Texts after which computed vectors are written to the cache."""


class Cached:
    """An `Embedder` that embeds no text twice, across processes and runs.

    It always returns vectors in the cache's half precision: a text has the same vector on the first call and later.

    Args:
        kind: suffix of the key, for models that make several kinds of vectors.
    """

    def __init__(
        self, embedder: Embedder, cache: EmbeddingCache, limiter: trio.CapacityLimiter, *, kind: str = ""
    ) -> None:
        self.model = embedder.model
        self._key = embedder.model + kind
        self._embedder = embedder
        self._cache = cache
        self._limiter = limiter
        self._dimension: int | None = None
        self._broken = False

    @property
    def dimension(self) -> int | None:
        return self._embedder.dimension or self._dimension

    async def embed(self, me: Emitter, texts: Sequence[str], *, query: bool = False) -> Vectors:
        keys = [key_of(self._key, text, query=query) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        found = await self._cached(me, list(wanted))
        missing = [key for key in wanted if key not in found]
        for first in range(0, len(missing), PART):
            part = missing[first : first + PART]
            vectors = await self._embedder.embed(me, [wanted[key] for key in part], query=query)
            new = dict(zip(part, [row.tobytes() for row in vectors.astype("<f2")], strict=True))
            found |= new
            try:
                if not self._broken:
                    await self._cache.put(new)
            except (sqlite3.Error, OSError) as error:
                self._do_without(me, error)
        rows = await trio.to_thread.run_sync(self._unpacked, keys, found, limiter=self._limiter)
        if len(rows):
            self._dimension = rows.shape[1]
        return rows

    def _unpacked(self, keys: Sequence[bytes], found: Mapping[bytes, bytes]) -> Vectors:
        import numpy as np

        if not keys:
            return np.empty((0, self.dimension or 0), np.float32)
        return normalised([np.frombuffer(found[key], "<f2") for key in keys], self.model)

    async def _cached(self, me: Emitter, keys: list[bytes]) -> dict[bytes, bytes]:
        try:
            found = {} if self._broken else await self._cache.get(keys)
        except (sqlite3.Error, OSError) as error:
            self._do_without(me, error)
            return {}
        size = None if self.dimension is None else 2 * self.dimension
        sizes = {len(vector) for vector in found.values()} | ({size} if size else set())
        # Vectors of several lengths: the server has another model under that name now, so ignore all of them.
        return found if len(sizes) <= 1 else {}

    def _do_without(self, me: Emitter, error: Exception) -> None:
        self._broken = True
        text = (
            f"the cache of vectors {self._cache.path} can't be used ({error}): new vectors are not cached, "
            "so the next build computes them again"
        )
        me.emit(Warned(code="embedding_cache", message=text))
