"""The catalogue: which sources there are, how they were cut up, and the text of every chunk. A SQLite file.

A chunk has a number, which the indexes know it by. Numbers only grow: one that is given up is never given again, so a
number above those of the generation before means a chunk that is new. `origin` is the source as it was named to the
build, a document's own `source` what is shown; they differ where one source is a list of documents.
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


class Known(msgspec.Struct, frozen=True):
    """A source as it was when it was read."""

    source: str
    digest: str
    size: int | None
    mtime: float | None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk with its number, the document it is a piece of, and which piece of it it is."""

    number: int
    document: int
    ordinal: int
    chunk: Chunk


ROWS = """SELECT c.number, c.document, c.ordinal, c.id, d.source, c.text, c.heading, c.first, c.last
    FROM chunks c JOIN documents d ON d.id = c.document"""


def known(db: sqlite3.Connection) -> dict[str, Known]:
    """All sources by name."""
    found = db.execute("SELECT source, digest, size, mtime FROM sources ORDER BY source")
    return {row[0]: Known(*row) for row in found}


def row(values: tuple[Any, ...]) -> Row:
    """What `ROWS` selects, as a `Row`."""
    number, document, ordinal, id, source, text, heading, first, last = values
    path = tuple(decode_json(heading, list[str]))
    chunk = Chunk(id=id, source=source, text=text, heading=path, lines=(first, last))
    return Row(number=number, document=document, ordinal=ordinal, chunk=chunk)


@final
class Catalogue:
    """A finished catalogue, which is read-only. Everything here blocks; any thread may call it."""

    def __init__(self, path: Path) -> None:
        # Immutable: no locks, no journal, and no look whether another process has changed it.
        self._db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def check(self) -> None:
        """Raise sqlite3.DatabaseError if it is none. Doesn't count anything: it may be a million rows."""
        self._all("SELECT max(number) FROM chunks")

    def known(self) -> dict[str, Known]:
        """All sources by name."""
        with self._lock:
            return known(self._db)

    def documents(self) -> list[tuple[int, str]]:
        """The id of every document and the source it is shown as."""
        return self._all("SELECT id, source FROM documents")

    def numbers(self, documents: Sequence[int]) -> list[int]:
        """The chunks of these documents."""
        return [number for (number,) in self._in("SELECT number FROM chunks WHERE document IN (%s)", documents)]

    def rows(self, numbers: Sequence[int]) -> dict[int, Row]:
        """These chunks by number."""
        return {each.number: each for each in map(row, self._in(f"{ROWS} WHERE c.number IN (%s)", numbers))}

    def slice(self, after: tuple[int, int], limit: int) -> list[Row]:
        """The next chunks after that document and ordinal, document by document."""
        query = f"{ROWS} WHERE (c.document, c.ordinal) > (?, ?) ORDER BY c.document, c.ordinal LIMIT ?"
        return [row(values) for values in self._all(query, (*after, limit))]

    def _in(self, query: str, values: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(values), AT_ONCE):
            some = values[start : start + AT_ONCE]
            yield from self._all(query % ",".join("?" * len(some)), some)

    def _all(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """What the last build, finished or not, could not read; `unreadable.json` beside the generations.

    A source of which nothing can be read is remembered as it was, so that runs don't report it as new each time. Builds
    try it again all the same, for what was missing may have been a permission, or a library.

    Attributes:
        told: what was reported.
        sources: those of which nothing could be read, as they were; without a digest where their bytes were not to be
            had.
    """

    told: tuple[Unreadable, ...] = ()
    sources: tuple[Known, ...] = ()


@final
class Kept:
    """What could not be read, with all below it: none of it counts as removed."""

    def __init__(self, unreadable: Sequence[Unreadable]) -> None:
        self._names = frozenset(each.source.rstrip("*").rstrip("/") for each in unreadable)

    def has(self, name: str) -> bool:
        """Whether that source is among it."""
        return name in self._names or any(name[:at] in self._names for at, letter in enumerate(name) if letter == "/")
