"""Build of a knowledge base, and its update from changed sources.

A build reads all changed sources, embeds their new chunks, and derives the indexes of the new generation from the
previous ones. Its last step makes the new generation current. All intermediate results are stored (`BuildWork`), so
after a kill, a cancellation or a full disk the next build resumes there. A kill costs only uncommitted work.

A source with unchanged size and modification time is not read. A source with an unchanged digest is not split. An
unchanged chunk is not embedded. Sources that are no longer named are removed. Unreadable sources are reported. Their
previous content, and that of all sources below an unreadable path, is retained: a server that is down for a moment must
not empty a base.

The catalogue of an unfinished generation is a copy of the previous one, changed in place. `work.sqlite` stores the data
for the indexes:

    touched   documents whose words must be removed from the word index
    gone      chunks whose vectors must be removed from the vector index
    vectors   vectors of new chunks, as 16 bit floats

A chunk, or a document, is new if its number is above the last one of the previous generation. A new chunk is pending
until it has a vector. When a source is read again, its unchanged chunks keep their numbers, and so their vectors.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

import msgspec
import trio

from .....protocol.decoding import decode_json
from .....protocol.errors import KnowledgeBusy, KnowledgeError
from .....protocol.knowledge import Chunk, Document, Unreadable
from .....supervisors.actor import Actor
from ....io.atomic_write import write_whole
from .base import same_stamp
from .bm25_index import WordIndex, check_language, write_words
from .catalogue import ROWS, SCHEMA, Catalogue, ChunkRow, KnownSource, LostSources, UnreadablePaths, known, row
from .layout import BaseLayout, knowledge_errors, sync_all
from .model import (
    FORMAT,
    BaseSettings,
    BuildProgress,
    BuildReport,
    GenerationMeta,
    KnowledgeSource,
    Splitter,
    embedded_text,
    halves,
    is_unicode,
    no_unicode,
    split_up,
)
from .vector_index import open_vectors, write_vectors

if TYPE_CHECKING:
    from ..embed.embedder import Embedder


T = TypeVar("T")

LOOK_AGAIN = 0.2
"""Seconds between two attempts to get the lock that another builder holds."""

CLOSE_WITHIN = 10.0
"""Seconds in which a cancelled build may commit its results."""

YOUNG = 2.0
"""Seconds since a change until a modification time is trusted: some file systems count in steps of two seconds."""


async def build(
    me: Actor,
    directory: Path,
    sources: AsyncIterable[KnowledgeSource | Unreadable],
    *,
    embedder: Embedder,
    splitter: Splitter,
    settings: BaseSettings | None = None,
    recipe: bytes | None = None,
    on_progress: Callable[[BuildProgress], None] | None = None,
    rebuild: bool = False,
    wait: float = 0.0,
) -> BuildReport:
    """Make the base in this directory contain exactly these sources. Unreadable ones retain their previous content.

    Unreadable sources retain their previous content, except in a rebuild.

    Args:
        me: the actor on whose behalf the embedder works.
        directory: created if it is missing.
        sources: all sources; of two with the same name, the first is used.
        embedder: an embedder with the model that the base was built with.
        splitter: splits documents according to `settings`.
        settings: None for the settings of the existing base, or the defaults for a new one.
        recipe: description of the sources, stored in the base (`layout.BaseLayout.recipe`).
        on_progress: called often, on the event loop.
        rebuild: reuse nothing of the existing base; an interrupted rebuild is resumed.
        wait: seconds to wait for another builder.

    Raises:
        KnowledgeBusy: another builder holds the lock.
        KnowledgeError: the base was built with another model, dimension or language, or is broken; the disk is full;
            or a rebuild of an existing base finds no text, and some of its sources are unreadable.
    """
    layout = BaseLayout(directory)
    limiter = trio.CapacityLimiter(1)
    began = trio.current_time()
    async with _lock(layout, limiter, wait):
        begin = partial(BuildStart, layout, embedder.model, embedder.dimension, settings, rebuild=rebuild)
        start = await trio.to_thread.run_sync(begin, limiter=limiter)
        job = _Build(me, layout, limiter, start, on_progress or (lambda _: None))
        try:
            if recipe is not None:
                await job.keep(recipe)
            await job.read(sources, splitter)
            if start.work is not None:
                dimension = await job.embed(start.work, embedder)
                await job.finish(start.work, dimension)
        finally:
            if start.work is not None:
                # Shielded: a cancelled build commits its results, so that the next one can resume.
                with me.root.shield(CLOSE_WITHIN):
                    await trio.to_thread.run_sync(start.work.close, limiter=limiter)
    return BuildReport(
        added=job.added,
        changed=job.changed,
        removed=job.removed,
        unchanged=job.unchanged,
        unreadable=tuple(job.unreadable),
        embedded=job.embedded,
        chunks=job.chunks,
        generation=job.generation,
        seconds=trio.current_time() - began,
    )


async def drop(directory: Path) -> None:
    """Remove a base, and the directory if it contains nothing else. Open readers can still read it.

    A missing directory is no error.

    Raises:
        KnowledgeBusy: a build of it is running.
        KnowledgeError: the directory contains other files, and no base.
    """
    layout = BaseLayout(directory)
    limiter = trio.CapacityLimiter(1)
    if await trio.to_thread.run_sync(directory.is_dir, limiter=limiter):
        async with _lock(layout, limiter, 0.0):
            await _in_thread(layout, limiter, layout.drop)


@final
class _Build:
    def __init__(
        self,
        me: Actor,
        layout: BaseLayout,
        limiter: trio.CapacityLimiter,
        start: BuildStart,
        tell: Callable[[BuildProgress], None],
    ) -> None:
        self._me = me
        self._layout = layout
        self._limiter = limiter
        self._start = start
        self._tell = tell
        self.added = self.changed = self.removed = self.unchanged = self.embedded = 0
        self.unreadable: list[Unreadable] = []
        self._lost: list[KnownSource] = []
        self.generation = start.number
        self.chunks = start.meta.chunks if start.meta else 0

    async def _do(self, work: Callable[[], T]) -> T:
        return await _in_thread(self._layout, self._limiter, work)

    async def keep(self, recipe: bytes) -> None:
        await self._do(partial(self._layout.keep_recipe, recipe))

    async def read(self, sources: AsyncIterable[KnowledgeSource | Unreadable], splitter: Splitter) -> None:
        """Record every changed source, and remove sources that no longer exist."""
        seen: set[str] = set()
        async for source in sources:
            if isinstance(source, Unreadable):
                self.unreadable.append(source)
            elif source.source not in seen:
                seen.add(source.source)
                await self._inspect(source, splitter)
                self._tell(BuildProgress(phase="read", done=len(seen), source=source.source))
        kept = UnreadablePaths(self.unreadable)
        for name in self._start.known:
            if name not in seen and not kept.has(name):
                await self._do(partial(self._remove, name))
                self.removed += name in self._start.before
        if self._start.work is not None:
            await self._do(self._start.work.commit)
        if await self._do(self._would_empty_it):
            first = self.unreadable[0]
            raise KnowledgeError(
                f"none of the documents for {self._layout.directory} can be read, so the knowledge base is "
                f"unchanged; the first one is {first.source}: {first.reason}"
            )
        lost = LostSources(told=tuple(self.unreadable), sources=tuple(self._lost))
        await self._do(partial(self._layout.keep_lost, lost))

    def _would_empty_it(self) -> bool:
        """Return whether a rebuild has read no chunk because sources are unreadable; if so, drop the rebuild."""
        work, replaces = self._start.work, self._start.number and not self._start.meta
        if work is None or not replaces or not self.unreadable or work.counts()[1]:
            return False
        work.close()
        self._layout.drop_building()
        return True

    async def _inspect(self, source: KnowledgeSource, splitter: Splitter) -> None:
        if not is_unicode(source.source):
            self.unreadable.append(no_unicode(source.source))
            return
        known = self._start.known.get(source.source)
        # An empty digest (see `begin`) means that the source must be split again, although it is unchanged.
        if known is not None and known.digest and same_stamp(known, source):
            self._count(known)
            return
        digest = await source.digest()
        if isinstance(digest, Unreadable):
            self.unreadable.append(digest)
            self._lost.append(KnownSource(source.source, "", source.size, None))
            return
        if known is not None and known.digest == digest:
            self._count(known)
            return
        found = await source.documents()
        pieces, unreadable = await trio.to_thread.run_sync(split_up, splitter, found, limiter=self._limiter)
        self.unreadable += unreadable
        mtime = source.mtime  # a younger file could change again without a new modification time
        mtime = mtime if mtime is not None and time.time() - mtime > YOUNG else None
        entry = KnownSource(source.source, digest, source.size, mtime)
        # Nothing of the source can be read: retain its old content, and remember its stamp (`LostSources`).
        if unreadable and not pieces:
            self._lost.append(entry)
            return
        await self._do(lambda: self._start.begin().record(entry, pieces))
        self._count(entry)

    def _remove(self, name: str) -> None:
        self._start.begin().remove(name)

    def _count(self, entry: KnownSource) -> None:
        before = self._start.before.get(entry.source)
        if before is None:
            self.added += 1
        elif before.digest != entry.digest:
            self.changed += 1
        else:
            self.unchanged += 1

    async def embed(self, work: BuildWork, embedder: Embedder) -> int:
        """Embed every new chunk. Return the dimension of the vectors."""
        meta = self._start.meta
        dimension = (meta.dimension if meta else 0) or await self._do(work.dimension)
        total = await self._do(work.pending_count)
        began, last = trio.current_time(), 0
        while rows := await self._do(partial(work.pending, last, self._start.settings.block)):
            pace = (trio.current_time() - began) / self.embedded if self.embedded else None
            left = None if pace is None else pace * (total - self.embedded)
            self._tell(BuildProgress(phase="embed", done=self.embedded, total=total, seconds_left=left))
            matrix = await embedder.embed(self._me, [embedded_text(row.chunk) for row in rows])
            checked = partial(halves, matrix, len(rows), dimension, embedder.model)
            vectors = await trio.to_thread.run_sync(checked, limiter=self._limiter)
            await self._do(partial(work.keep, list(zip([row.number for row in rows], vectors, strict=True))))
            # 16 bit floats have two bytes.
            dimension, last = len(vectors[0]) // 2, rows[-1].number
            self.embedded += len(rows)
        if total:
            self._tell(BuildProgress(phase="embed", done=self.embedded, total=total, seconds_left=0.0))
        return dimension

    async def finish(self, work: BuildWork, dimension: int) -> None:
        number = self._start.number + 1
        _, self.chunks = await self._do(work.counts)
        steps = finish(work, number, dimension)
        while (step := await self._do(partial(next, steps, None))) is not None:
            self._tell(BuildProgress(phase="index", done=step[0], total=step[1]))
        self.generation = number


async def _in_thread(layout: BaseLayout, limiter: trio.CapacityLimiter, work: Callable[[], T]) -> T:
    """Run an operation on the files of the base in the thread of this build, with `knowledge_errors`."""

    def watched() -> T:
        with knowledge_errors(layout):
            return work()

    return await trio.to_thread.run_sync(watched, limiter=limiter)


@asynccontextmanager
async def _lock(layout: BaseLayout, limiter: trio.CapacityLimiter, wait: float) -> AsyncIterator[None]:
    deadline = trio.current_time() + wait
    while True:
        try:
            handle = await _in_thread(layout, limiter, layout.build_lock)
            break
        except KnowledgeBusy:
            if trio.current_time() >= deadline:
                raise
            await trio.sleep(LOOK_AGAIN)
    try:
        yield
    finally:
        os.close(handle)


@final
class BuildStart:
    """Start of a build: the previous generation, and the rest of an interrupted build. Its methods block.

    Attributes:
        settings: settings of the build.
        number: the current generation; 0 if there is none.
        meta: metadata of the generation that the build extends; None if it starts from nothing.
        before: sources of that generation.
        known: the same, updated with the sources that an interrupted build has read.
        work: the unfinished generation; None until the first difference is found.
    """

    def __init__(
        self, layout: BaseLayout, model: str, dimension: int | None, settings: BaseSettings | None, *, rebuild: bool
    ) -> None:
        self._layout = layout
        self._model = model
        with knowledge_errors(layout):
            self.number = layout.complete_swap(rebuild=rebuild)
            layout.sweep()
        # A rebuild reuses nothing, so a broken generation does not stop it.
        base = 0 if rebuild else self.number
        self.meta: GenerationMeta | None = layout.meta(base) if base else None
        with knowledge_errors(layout):
            self.work: BuildWork | None = unfinished(layout, self.number, model, settings, rebuild=rebuild)
        if self.work is not None and not self.work.plan.base:
            self.meta = None  # The unfinished generation belongs to a rebuild, which is resumed.
        if self.work is not None:
            self.settings = self.work.plan.settings
        else:
            self.settings = settings or (self.meta.settings if self.meta else BaseSettings())
            check_language(self.settings.language)
        if self.meta is not None:
            self._check(self.meta, dimension)
        self.before: dict[str, KnownSource] = {}
        with knowledge_errors(layout):
            if self.meta is not None:
                catalogue = Catalogue(layout.generation(self.meta.generation) / "catalogue.sqlite")
                self.before = catalogue.known()
                catalogue.close()
            if self.meta is None or not self.settings.splits_as(self.meta.settings):
                self.begin()
            self.known = self.work.known() if self.work else self.before

    def begin(self) -> BuildWork:
        """Return the unfinished generation; create it if there is none."""
        if self.work is None:
            base = self.meta.generation if self.meta else 0
            resplit = self.meta is not None and not self.settings.splits_as(self.meta.settings)
            self.work = begin(self._layout, base, self._model, self.settings, resplit=resplit)
        return self.work

    def _check(self, meta: GenerationMeta, dimension: int | None) -> None:
        for what, was, wanted in (
            ("model", meta.model, self._model),
            ("language", meta.settings.language, self.settings.language),
            ("dimension", meta.dimension, dimension if dimension and meta.dimension else meta.dimension),
        ):
            if was != wanted:
                directory = self._layout.directory
                raise KnowledgeError(
                    f"{directory} was built with {what} {was!r}, which differs from {wanted!r} now; to "
                    f"rebuild all of it, run: callboard kb rebuild {directory}"
                )


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
            # An empty digest matches no source, so each one is read and split.
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
            # An unchanged chunk has the same id and reuses its number; None lets SQLite assign the next one.
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
        """Return the number of new chunks without a vector."""
        [pending] = self._db.execute(COUNT_PENDING, (self.plan.last_chunk,)).fetchone()
        return int(pending)

    def pending(self, after: int, limit: int) -> list[ChunkRow]:
        """Return up to `limit` new chunks without a vector, with numbers above `after`, sorted by number."""
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
    # From this rename on the generation is complete: after a kill, `BaseLayout.complete_swap` makes it current.
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
            f"the indexes in {home} have {found} chunks instead of {meta.chunks}, because the previous build "
            f"is damaged; run: callboard kb rebuild {home.parent}"
        )
    (home / "readers").touch()
    sizes = {name: size for name, size in sync_all(home).items() if name not in UNSEALED}
    data = msgspec.json.encode(msgspec.structs.replace(meta, files=sizes))
    write_whole(home / "meta.json", msgspec.json.format(data), durable=True)
