"""Unfinished generation: chunks and vectors that a build has produced so far. A kill costs only uncommitted work.

Its catalogue is a copy of the previous one, changed in place. `work.sqlite` stores the data for the indexes:

    touched   documents whose words must be removed from the word index
    gone      chunks whose vectors must be removed from the vector index
    vectors   vectors of new chunks, as 16 bit floats

A chunk, or a document, is new if its number is above the last one of the previous generation. A new chunk is pending
until it has a vector. When a source is read again, its unchanged chunks keep their numbers, and so their vectors.
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
from ....io.atomic_write import write_whole
from .bm25_index import WordIndex, write_words
from .catalogue import ROWS, SCHEMA, ChunkRow, KnownSource, known, row
from .layout import BaseLayout, sync_all
from .model import FORMAT, BaseSettings, GenerationMeta
from .vector_index import open_vectors, write_vectors

COMMIT_EVERY = 1.0
"""Seconds of reading that a kill may cost."""

WORK = """
CREATE TABLE IF NOT EXISTS work.touched (document INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS work.gone (number INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS work.vectors (number INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of an unfinished generation: its `plan.json`.

    Attributes:
        format: see `model.FORMAT`.
        base: the generation that it extends; 0 for none.
        last_document, last_chunk: the highest numbers of that generation.
        model: id of the embedding model.
        settings: settings of the build.
    """

    format: int
    base: int
    last_document: int
    last_chunk: int
    model: str
    settings: BaseSettings


def unfinished(
    layout: BaseLayout, base: int, model: str, settings: BaseSettings | None, *, rebuild: bool
) -> BuildWork | None:
    """Return the work of an interrupted build if it can be resumed; else remove it.

    Args:
        base: the generation that this build extends, or replaces by a rebuild.
        settings: None for the settings of the interrupted build.
    """
    try:
        plan = decode_json((layout.building / "plan.json").read_bytes(), BuildPlan)
        wanted = settings or plan.settings
        same = (plan.format, plan.model, plan.settings.language) == (FORMAT, model, wanted.language)
        upon = plan.base == 0 or (plan.base == base and not rebuild)
        if same and upon and plan.settings.splits_as(wanted):
            return BuildWork(layout, plan)
    except (FileNotFoundError, msgspec.DecodeError, sqlite3.DatabaseError):
        pass  # Killed before it began, or foreign, or broken: all of it can be built again.
    layout.drop_building()
    return None


def begin(layout: BaseLayout, base: int, model: str, settings: BaseSettings, *, resplit: bool) -> BuildWork:
    """Create an unfinished generation as a copy of the generation `base`.

    Args:
        resplit: all sources must be read and split again.
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
        # the highest numbers ever used, also by deleted rows
        given = dict(db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    finally:
        db.close()
    plan = BuildPlan(
        format=FORMAT,
        base=base,
        last_document=given.get("documents", 0),
        last_chunk=given.get("chunks", 0),
        model=model,
        settings=settings,
    )
    write_whole(layout.building / "plan.json", msgspec.json.encode(plan))
    return BuildWork(layout, plan)


@final
class BuildWork:
    """Catalogue and vectors of an unfinished generation. Its methods block; use one thread at a time."""

    def __init__(self, layout: BaseLayout, plan: BuildPlan) -> None:
        self.layout = layout
        self.plan = plan
        self._db = sqlite3.connect(layout.building / "catalogue.sqlite", isolation_level=None, check_same_thread=False)
        self._began = 0.0  # start of the open transaction
        try:
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("ATTACH ? AS work", (str(layout.work),))
            self._db.executescript(WORK)
        except BaseException:  # including cancellation: the file must not stay open
            self._db.close()
            raise

    def close(self) -> None:
        """Commit if possible, and close the files. Idempotent."""
        try:
            with suppress(sqlite3.Error):  # a full disk: the error already raised says so
                self.commit()
        finally:
            # An empty digest matches no source, so each one is read and split.
            self._db.close()

    def commit(self) -> None:
        """Commit all changes so far, so that they survive a kill."""
        if self._db.in_transaction:
            self._db.execute("COMMIT")

    def _begin(self) -> None:
        if self._db.in_transaction and time.monotonic() - self._began > COMMIT_EVERY:
            self.commit()
        if not self._db.in_transaction:
            self._db.execute("BEGIN")
            self._began = time.monotonic()

    def counts(self) -> tuple[int, int]:
        """Return the number of sources and of chunks."""
        found = self._db.execute("SELECT (SELECT count(*) FROM sources), (SELECT count(*) FROM chunks)")
        sources, chunks = found.fetchone()
        return sources, chunks

    # --- sources -------------------------------------------------------------------------------------------------

    def known(self) -> dict[str, KnownSource]:
        """Return all sources by name."""
        return known(self._db)

    def record(self, source: KnownSource, documents: Sequence[tuple[Document, Sequence[Chunk]]]) -> None:
        """Replace the content of a source by its current documents."""
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
        """Remove a source and its documents."""
        self._begin()
        before = self._take_out(source)
        self._db.execute("DELETE FROM sources WHERE source = ?", (source,))
        self._give_up([number for _, number in before])

    def _take_out(self, source: str) -> list[tuple[str, int]]:
        """Remove the documents of a source. Return the ids and numbers of their chunks."""
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
        """Return the number of chunks without a vector."""
        [pending] = self._db.execute(COUNT_PENDING, (self.plan.last_chunk,)).fetchone()
        return int(pending)

    def pending(self, after: int, limit: int) -> list[ChunkRow]:
        """Return the next chunks without a vector, after a number."""
        # An unchanged chunk has the same id and reuses its number; None lets SQLite assign the next one.
        values = (max(after, self.plan.last_chunk), limit)
        return [row(each) for each in self._db.execute(f"{ROWS} {PENDING} ORDER BY c.number LIMIT ?", values)]

    def keep(self, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Store vectors by chunk number; they are committed when this returns."""
        self._begin()
        self._db.executemany("INSERT INTO work.vectors VALUES (?, ?)", vectors)
        self.commit()

    def dimension(self) -> int:
        """Return the dimension of the stored vectors; 0 if there are none."""
        found = self._db.execute("SELECT length(data) FROM work.vectors LIMIT 1").fetchone()
        return found[0] // 2 if found else 0

    # --- input of the indexes ------------------------------------------------------------------------------------

    def touched(self) -> list[int]:
        """Return the documents to remove from the word index."""
        return [id for (id,) in self._db.execute("SELECT document FROM work.touched")]

    def removed_chunks(self) -> list[int]:
        """Return the chunks to remove from the vector index."""
        return [number for (number,) in self._db.execute("SELECT number FROM work.gone")]

    def added(self, size: int) -> Iterator[list[ChunkRow]]:
        """Yield the chunks of all new documents, at most `size` at a time."""
        found = self._db.execute(f"{ROWS} WHERE c.document > ? ORDER BY c.document", (self.plan.last_document,))
        for values in _slices(found, size):
            yield [row(each) for each in values]

    def vectors(self, size: int) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the vectors of all new chunks, sorted by number, at most `size` at a time."""
        yield from _slices(self._db.execute("SELECT number, data FROM work.vectors ORDER BY number"), size)


PENDING = "LEFT JOIN work.vectors v ON v.number = c.number WHERE c.number > ? AND v.number IS NULL"
COUNT_PENDING = """SELECT count(*) FROM chunks c
    LEFT JOIN work.vectors v ON v.number = c.number WHERE c.number > ? AND v.number IS NULL"""


def _slices(cursor: sqlite3.Cursor, size: int) -> Iterator[list[tuple[Any, ...]]]:
    while values := cursor.fetchmany(size):
        yield values


# End of a build: the indexes of the new generation, and the swap. After a kill in this phase, the next build repeats it
# from `BuildWork`.

SLICE = 1_000

UNSEALED = ("plan.json", "meta.json")
"""Files that no reader needs, or that can't contain their own size."""


def finish(work: BuildWork, number: int, dimension: int) -> Iterator[tuple[int, int]]:
    """Make the unfinished generation the current one, with this number. Yields steps done and total steps.

    It is a generator, so that a cancelled builder can stop about once a second and not only at the end. Closes `work`
    when the indexes are written.

    Args:
        dimension: dimension of all vectors; 0 if there are none.
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
        without=work.removed_chunks(),
        added=work.vectors(SLICE),
    )
    for done in vectors:
        yield chunks + done, total
    # Closed before `_seal` records the size of the catalogue.
    work.close()
    _seal(
        home,
        GenerationMeta(
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
    # From this rename on the generation is complete: after a kill, `BaseLayout.settle` makes it current.
    home.rename(target)
    layout.swap(number)
    layout.drop_work()
    layout.sweep()
    yield total, total


def _seal(home: Path, meta: GenerationMeta) -> None:
    """Check the indexes against the catalogue, and flush all files to disk before readers see them."""
    found = len(WordIndex(home / "words", meta.settings.language)), len(open_vectors(home))
    if found != (meta.chunks, meta.chunks):
        raise KnowledgeError(
            f"the indexes in {home} are of {found} chunks instead of {meta.chunks}, because the generation before is"
            f" broken; run: callboard kb rebuild {home.parent}"
        )
    (home / "readers").touch()
    sizes = {name: size for name, size in sync_all(home).items() if name not in UNSEALED}
    data = msgspec.json.encode(msgspec.structs.replace(meta, files=sizes))
    write_whole(home / "meta.json", msgspec.json.format(data), durable=True)
