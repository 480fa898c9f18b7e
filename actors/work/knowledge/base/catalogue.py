"""Catalogue of a generation: an SQLite file with its sources, documents, and the text of every chunk.

A chunk has a number, which the indexes use as its key. Numbers only grow and are never reused, so a number above all of
the previous generation marks a new chunk. `origin` is the source as named to the build; the `source` of a document is
shown to users. They differ if one source is a list of documents.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final
from urllib.parse import quote

import msgspec

from .....protocol.decoding import decode_json
from .....protocol.knowledge import Chunk, Unreadable

SCHEMA = """
CREATE TABLE sources (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL, size INTEGER, mtime REAL);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, origin INTEGER NOT NULL,
    source TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL);
CREATE INDEX documents_by_origin ON documents (origin);
CREATE TABLE chunks (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, document INTEGER NOT NULL, ordinal INTEGER NOT NULL,
    text TEXT NOT NULL, heading TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE INDEX chunks_by_document ON chunks (document, ordinal);
"""

AT_ONCE = 500
"""Values in one `IN (...)`."""


class KnownSource(msgspec.Struct, frozen=True):
    """State of a source at the time when it was read."""

    source: str
    digest: str
    size: int | None
    mtime: float | None


class ChunkRow(msgspec.Struct, frozen=True, kw_only=True):
    """Chunk with its number, its document, and its position in the document."""

    number: int
    document: int
    ordinal: int
    chunk: Chunk


ROWS = """SELECT c.number, c.document, c.ordinal, c.id, d.source, c.text, c.heading, c.first, c.last
    FROM chunks c JOIN documents d ON d.id = c.document"""


def known(db: sqlite3.Connection) -> dict[str, KnownSource]:
    """Return all sources by name."""
    found = db.execute("SELECT source, digest, size, mtime FROM sources ORDER BY source")
    return {row[0]: KnownSource(*row) for row in found}


def row(values: tuple[Any, ...]) -> ChunkRow:
    """Return a row of the query `ROWS` as a `ChunkRow`."""
    number, document, ordinal, id, source, text, heading, first, last = values
    path = tuple(decode_json(heading, list[str]))
    chunk = Chunk(id=id, source=source, text=text, heading=path, lines=(first, last))
    return ChunkRow(number=number, document=document, ordinal=ordinal, chunk=chunk)


@final
class Catalogue:
    """Read-only catalogue of a finished generation. Its methods block and are thread-safe."""

    def __init__(self, path: Path) -> None:
        # Immutable: no locks, no journal, and no check for changes by other processes.
        self._db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def check(self) -> None:
        """Raise sqlite3.DatabaseError if the file is no catalogue. Counts no rows, since there may be a million."""
        self._all("SELECT max(number) FROM chunks")

    def known(self) -> dict[str, KnownSource]:
        """Return all sources by name."""
        with self._lock:
            return known(self._db)

    def documents(self) -> list[tuple[int, str]]:
        """Return the id and the displayed source of every document."""
        return self._all("SELECT id, source FROM documents")

    def numbers(self, documents: Sequence[int]) -> list[int]:
        """Return the numbers of the chunks of these documents."""
        return [number for (number,) in self._in("SELECT number FROM chunks WHERE document IN (%s)", documents)]

    def rows(self, numbers: Sequence[int]) -> dict[int, ChunkRow]:
        """Return these chunks by number."""
        return {each.number: each for each in map(row, self._in(f"{ROWS} WHERE c.number IN (%s)", numbers))}

    def slice(self, after: tuple[int, int], limit: int) -> list[ChunkRow]:
        """Return the next chunks after a document and ordinal, document by document."""
        query = f"{ROWS} WHERE (c.document, c.ordinal) > (?, ?) ORDER BY c.document, c.ordinal LIMIT ?"
        return [row(values) for values in self._all(query, (*after, limit))]

    def _in(self, query: str, values: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(values), AT_ONCE):
            some = values[start : start + AT_ONCE]
            yield from self._all(query % ",".join("?" * len(some)), some)

    def _all(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()


class LostSources(msgspec.Struct, frozen=True, kw_only=True):
    """Sources that the last build, finished or not, could not read; stored in `unreadable.json`.

    The state of an entirely unreadable source is remembered, so that runs do not report it as new each time. Builds try
    it again all the same, because a permission or a library may have been missing.

    Attributes:
        told: the reports of the build.
        sources: state of the entirely unreadable sources; the digest is empty if not even the bytes could be read.
    """

    told: tuple[Unreadable, ...] = ()
    sources: tuple[KnownSource, ...] = ()


@final
class UnreadablePaths:
    """Unreadable sources, with all paths below them: none of these counts as removed."""

    def __init__(self, unreadable: Sequence[Unreadable]) -> None:
        # A crawl `https://example.com/**` covers all pages below it.
        self._names = frozenset(each.source.rstrip("*").rstrip("/") for each in unreadable)

    def has(self, name: str) -> bool:
        """Return whether the source is unreadable itself, or a file below an unreadable directory."""
        return name in self._names or any(name[:at] in self._names for at, letter in enumerate(name) if letter == "/")
