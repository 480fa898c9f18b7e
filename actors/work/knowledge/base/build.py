"""Build of a knowledge base, and its update from changed sources.

A build reads all changed sources, embeds their new chunks, and derives the indexes of the new generation from the
previous ones. Its last step makes the new generation current. All intermediate results are stored (see `work`), so
after a kill, a cancellation or a full disk the next build resumes there.

A source with unchanged size and modification time is not read. A source with an unchanged digest is not split. An
unchanged chunk is not embedded. Sources that are no longer named are removed. Unreadable sources are reported. Their
previous content, and that of all sources below an unreadable path, is retained: a server that is down for a moment must
not empty a base.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

import trio

from .....protocol.errors import KnowledgeBusy, KnowledgeError
from .....protocol.knowledge import Unreadable
from .....supervisors.actor import Actor
from .base import same_stamp
from .bm25_index import check_language
from .catalogue import Catalogue, KnownSource, LostSources, UnreadablePaths
from .layout import BaseLayout, knowledge_errors
from .model import (
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
from .unfinished_generation import BuildWork, begin, finish, unfinished

if TYPE_CHECKING:
    from ..embed.embedder import Embedder

T = TypeVar("T")

LOOK_AGAIN = 0.2
"""Seconds between two attempts to get the lock of another builder."""

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
    """Make the base in this directory contain exactly these sources.

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
        KnowledgeError: the base was built with another model or language, is broken, or the disk is full.
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

    Raises:
        KnowledgeBusy: a build of it is running.
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
                f"none of the documents for {self._layout.directory} can be read, so it stays as it was;"
                f" {first.source}: {first.reason}"
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
        # An empty digest (see `work.begin`) means that the source must be split again, although it is unchanged.
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
                    f"{directory} was built with {what} {was!r}, and is to be built with {wanted!r}; to change that for"
                    f" all of it, run: callboard kb rebuild {directory}"
                )
