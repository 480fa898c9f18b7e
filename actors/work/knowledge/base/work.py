"""The unfinished generation: what a build has read and embedded so far. A kill costs what was not yet committed.

Its catalogue is a copy of the one before, changed in place. Beside it, `work.sqlite` keeps what the indexes will need:

    touched   documents whose words are to be taken out of the index of words
    gone      chunks whose vectors are to be taken out of the index of vectors
    vectors   of new chunks, as 16 bit floats

A chunk, or a document, is new if its number is above the last one of the generation before; a new chunk is pending
until it has a vector. Of a source that is read again, all chunks that came out as before keep their numbers, and so
their vectors.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import msgspec

from .....protocol.decoding import decode_json
from .....protocol.errors import KnowledgeError
from .....protocol.knowledge import Chunk, Document
from ....io.whole_file import write_whole
from .catalogue import ROWS, SCHEMA, Known, Row, known, row
from .layout import Layout, sync_all
from .model import FORMAT, Meta, Settings
from .vectors import open_vectors, write_vectors
from .words import Words, write_words

COMMIT_EVERY = 1.0
"""Seconds of reading that may be lost."""

WORK = """
CREATE TABLE IF NOT EXISTS work.touched (document INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS work.gone (number INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS work.vectors (number INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What an unfinished generation is to become; its `plan.json`.

    Attributes:
        format: see `model.FORMAT`.
        base: the generation it is made from; 0 for none.
        last_document, last_chunk: the highest numbers of that one.
        model: id of the embedding model.
        settings: what it is built with.
    """

    format: int
    base: int
    last_document: int
    last_chunk: int
    model: str
    settings: Settings


def unfinished(layout: Layout, base: int, model: str, settings: Settings | None, *, rebuild: bool) -> Work | None:
    """What an interrupted build has left, if it may be gone on with; else it is removed.

    Args:
        base: the generation that is to be built upon, or replaced by a rebuild.
        settings: None for those that it was begun with.
    """
    try:
        plan = decode_json((layout.building / "plan.json").read_bytes(), Plan)
        wanted = settings or plan.settings
        same = (plan.format, plan.model, plan.settings.language) == (FORMAT, model, wanted.language)
        upon = plan.base == 0 or (plan.base == base and not rebuild)
        if same and upon and plan.settings.splits_as(wanted):
            return Work(layout, plan)
    except (FileNotFoundError, msgspec.DecodeError, sqlite3.DatabaseError):
        pass  # killed before it was begun, or not ours, or broken: nothing is lost that can't be made again
    layout.drop_building()
    return None


def begin(layout: Layout, base: int, model: str, settings: Settings, *, resplit: bool) -> Work:
    """A new unfinished generation, so far a copy of that one.

    Args:
        resplit: all sources are to be read and split again.
    """
    layout.drop_building()
    layout.building.mkdir()
    path = layout.building / "catalogue.sqlite"
    if base:
        shutil.copyfile(layout.generation(base) / path.name, path)
    db = sqlite3.connect(path)
    try:
        if not base:
            db.executescript(SCHEMA)
        elif resplit:
            db.execute("UPDATE sources SET digest = ''")
            db.commit()
        given = dict(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())  # the highest there ever were
    finally:
        db.close()
    plan = Plan(
        format=FORMAT,
        base=base,
        last_document=given.get("documents", 0),
        last_chunk=given.get("chunks", 0),
        model=model,
        settings=settings,
    )
    write_whole(layout.building / "plan.json", msgspec.json.encode(plan))
    return Work(layout, plan)


@final
class Work:
    """See the module. Everything here blocks; one thread at a time."""

    def __init__(self, layout: Layout, plan: Plan) -> None:
        self.layout = layout
        self.plan = plan
        self._db = sqlite3.connect(layout.building / "catalogue.sqlite", isolation_level=None, check_same_thread=False)
        self._began = 0.0  # when the open transaction did
        try:
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("ATTACH ? AS work", (str(layout.work),))
            self._db.executescript(WORK)
        except BaseException:  # cancelled too: the file does not stay open
            self._db.close()
            raise

    def close(self) -> None:
        """Keep what there is, if that goes, and close the files. Harmless when they are closed."""
        try:
            with suppress(sqlite3.Error):  # a full disk: the error under way says so
                self.commit()
        finally:
            self._db.close()

    def commit(self) -> None:
        """Have all that was written so far survive a kill."""
        if self._db.in_transaction:
            self._db.execute("COMMIT")

    def _begin(self) -> None:
        if self._db.in_transaction and time.monotonic() - self._began > COMMIT_EVERY:
            self.commit()
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
            self._began = time.monotonic()

    def counts(self) -> tuple[int, int]:
        """How many sources and chunks there are."""
        found = self._db.execute("SELECT (SELECT count(*) FROM sources), (SELECT count(*) FROM chunks)")
        sources, chunks = found.fetchone()
        return sources, chunks

    # --- sources -------------------------------------------------------------------------------------------------

    def known(self) -> dict[str, Known]:
        """All sources by name."""
        return known(self._db)

    def record(self, source: Known, documents: Sequence[tuple[Document, Sequence[Chunk]]]) -> None:
        """A source as it is now, instead of what was known of it."""
        self._begin()
        before = self._take_out(source.source)
        numbers = dict(before)
        [origin] = self._db.execute(
            "INSERT INTO sources (source, digest, size, mtime) VALUES (?, ?, ?, ?) ON CONFLICT (source) DO UPDATE"
            " SET digest = excluded.digest, size = excluded.size, mtime = excluded.mtime RETURNING id",
            (source.source, source.digest, source.size, source.mtime),
        ).fetchone()
        for document, chunks in documents:
            id = self._db.execute(
                "INSERT INTO documents (origin, source, kind, title) VALUES (?, ?, ?, ?)",
                (origin, document.source, document.kind, document.title),
            ).lastrowid
            self._db.executemany(
                "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (numbers.pop(each.id, None), each.id, id, ordinal, each.text, heading.decode(), *each.lines)
                    for ordinal, each in enumerate(chunks)
                    for heading in (msgspec.json.encode(each.heading),)
                ],
            )
        taken = set(dict(before).values()) - set(numbers.values())
        self._give_up([number for _, number in before if number not in taken])

    def remove(self, source: str) -> None:
        """A source that is no more."""
        self._begin()
        before = self._take_out(source)
        self._db.execute("DELETE FROM sources WHERE source = ?", (source,))
        self._give_up([number for _, number in before])

    def _take_out(self, source: str) -> list[tuple[str, int]]:
        """Take the documents of a source out; the ids and numbers of their chunks."""
        documents = self._db.execute(
            "SELECT d.id FROM documents d JOIN sources s ON s.id = d.origin WHERE s.source = ?", (source,)
        ).fetchall()
        before: list[tuple[str, int]] = []
        for document in documents:
            before += self._db.execute("SELECT id, number FROM chunks WHERE document = ?", document)
        self._db.executemany("INSERT INTO work.touched VALUES (?)", documents)
        self._db.executemany("DELETE FROM chunks WHERE document = ?", documents)
        self._db.executemany("DELETE FROM documents WHERE id = ?", documents)
        return before

    def _give_up(self, numbers: Sequence[int]) -> None:
        last = self.plan.last_chunk
        self._db.executemany("INSERT INTO work.gone VALUES (?)", [(each,) for each in numbers if each <= last])
        self._db.executemany("DELETE FROM work.vectors WHERE number = ?", [(each,) for each in numbers if each > last])

    # --- vectors -------------------------------------------------------------------------------------------------

    def pending_count(self) -> int:
        """How many chunks have no vector yet."""
        [pending] = self._db.execute(COUNT_PENDING, (self.plan.last_chunk,)).fetchone()
        return int(pending)

    def pending(self, after: int, limit: int) -> list[Row]:
        """The next chunks without a vector, after that number."""
        values = (max(after, self.plan.last_chunk), limit)
        return [row(each) for each in self._db.execute(f"{ROWS} {PENDING} ORDER BY c.number LIMIT ?", values)]

    def keep(self, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Vectors by the numbers of their chunks; they are safe when this returns."""
        self._begin()
        self._db.executemany("INSERT INTO work.vectors VALUES (?, ?)", vectors)
        self.commit()

    def dimension(self) -> int:
        """Of the vectors that were kept; 0 if there are none."""
        found = self._db.execute("SELECT length(data) FROM work.vectors LIMIT 1").fetchone()
        return found[0] // 2 if found else 0

    # --- what the indexes need -----------------------------------------------------------------------------------

    def touched(self) -> list[int]:
        """Documents to be taken out of the index of words."""
        return [id for (id,) in self._db.execute("SELECT document FROM work.touched")]

    def gone(self) -> list[int]:
        """Chunks to be taken out of the index of vectors."""
        return [number for (number,) in self._db.execute("SELECT number FROM work.gone")]

    def added(self, size: int) -> Iterator[list[Row]]:
        """The chunks of all new documents, so many at a time."""
        found = self._db.execute(f"{ROWS} WHERE c.document > ? ORDER BY c.document", (self.plan.last_document,))
        for values in _slices(found, size):
            yield [row(each) for each in values]

    def vectors(self, size: int) -> Iterator[list[tuple[int, bytes]]]:
        """The vectors of all new chunks in the order of their numbers, so many at a time."""
        yield from _slices(self._db.execute("SELECT number, data FROM work.vectors ORDER BY number"), size)


PENDING = "LEFT JOIN work.vectors v ON v.number = c.number WHERE c.number > ? AND v.number IS NULL"
COUNT_PENDING = """SELECT count(*) FROM chunks c
    LEFT JOIN work.vectors v ON v.number = c.number WHERE c.number > ? AND v.number IS NULL"""


def _slices(cursor: sqlite3.Cursor, size: int) -> Iterator[list[tuple[Any, ...]]]:
    while values := cursor.fetchmany(size):
        yield values


# --- the end of a build: the indexes of the new generation, and the swap; what is killed here is made again from `Work`

SLICE = 1_000

UNSEALED = ("plan.json", "meta.json")
"""Files that no reader needs, or that can't tell their own size."""


def finish(work: Work, number: int, dimension: int) -> Iterator[tuple[int, int]]:
    """Make the unfinished generation the current one, of this number. Yields steps done and steps in all.

    A generator, so that a builder that was cancelled is asked once a second or so, not at the end. Closes `work` when
    it is done with it.

    Args:
        dimension: of all vectors; 0 if there is none.
    """
    layout, plan = work.layout, work.plan
    home, before = layout.building, layout.generation(plan.base) if plan.base else None
    sources, chunks = work.counts()
    total = 2 * chunks
    words = write_words(
        home / "words",
        plan.settings.language,
        before=before / "words" if before else None,
        without=work.touched(),
        added=work.added(SLICE),
    )
    for done in words:
        yield done, total
    vectors = write_vectors(
        home,
        dimension,
        chunks,
        exact_below=plan.settings.exact_below,
        before=before,
        without=work.gone(),
        added=work.vectors(SLICE),
    )
    for done in vectors:
        yield chunks + done, total
    work.close()
    _seal(
        home,
        Meta(
            format=FORMAT,
            generation=number,
            model=plan.model,
            dimension=dimension,
            settings=plan.settings,
            sources=sources,
            chunks=chunks,
            built=time.time(),
        ),
    )
    target = layout.generation(number)
    home.rename(target)
    layout.swap(number)
    layout.drop_work()
    layout.sweep()
    yield total, total


def _seal(home: Path, meta: Meta) -> None:
    """Check the indexes against the catalogue, and have all of it on disk before readers see it."""
    found = len(Words(home / "words", meta.settings.language)), len(open_vectors(home))
    if found != (meta.chunks, meta.chunks):
        raise KnowledgeError(
            f"the indexes in {home} are of {found} chunks instead of {meta.chunks}, because the generation before is"
            f" broken; run: callboard kb rebuild {home.parent}"
        )
    (home / "readers").touch()
    sizes = {name: size for name, size in sync_all(home).items() if name not in UNSEALED}
    data = msgspec.json.encode(msgspec.structs.replace(meta, files=sizes))
    write_whole(home / "meta.json", msgspec.json.format(data), durable=True)
