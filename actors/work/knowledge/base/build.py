"""Building a base, and keeping it up with its sources.

First all sources are read that are not as they were, then what is new in them is embedded, then the indexes of the new
generation are made from those of the one before; at the very end it becomes the current one. All of it is kept as it
goes (see `work`), so after a kill, a cancellation or a full disk the next build goes on from there.

A source with the size and the time of change that it had is not read; one with the digest that it had is not split;
a chunk that came out as it was is not embedded. Sources that are no longer named are removed. What can't be
read is reported, and what was known of it, or of what its name begins, is kept: a server that is down for a moment
must not empty a base.
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
from .catalogue import Catalogue, Kept, Known, Lost
from .layout import Layout, told
from .model import (
    BuildReport,
    Meta,
    Progress,
    Settings,
    Source,
    Splitter,
    embedded_text,
    halves,
    is_unicode,
    no_unicode,
    split_up,
)
from .words import check_language
from .work import Work, begin, finish, unfinished

if TYPE_CHECKING:
    from ..embed.embedder import Embedder

T = TypeVar("T")

LOOK_AGAIN = 0.2
"""Seconds between two looks whether the other builder is done."""

CLOSE_WITHIN = 10.0
"""Seconds that a build which is cancelled has to keep what it has."""

YOUNG = 2.0
"""Seconds that a file must not have changed for its time of change to say anything: some systems count in twos."""


async def build(
    me: Actor,
    directory: Path,
    sources: AsyncIterable[Source | Unreadable],
    *,
    embedder: Embedder,
    splitter: Splitter,
    settings: Settings | None = None,
    recipe: bytes | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    rebuild: bool = False,
    wait: float = 0.0,
) -> BuildReport:
    """Have the base in this directory hold these sources, and nothing else.

    Args:
        me: on whose behalf the embedder works.
        directory: made if it is not there.
        sources: all of them; of two with one name, the first counts.
        embedder: with the model that the base was built with.
        splitter: cuts as `settings` say.
        settings: None for those the base was built with, or for a new one the default.
        recipe: what it is made of, to be kept with it (`layout.Layout.recipe`).
        on_progress: called often, on the event loop.
        rebuild: use nothing of what is there; an interrupted rebuild is gone on with.
        wait: seconds to wait for another builder.

    Raises:
        KnowledgeBusy: another builder is at work.
        KnowledgeError: it was built with another model or language, is broken, or the disk is full.
    """
    layout = Layout(directory)
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
    """Remove a base, and the directory if nothing else is in it. Who has it open reads on.

    Raises:
        KnowledgeBusy: a build of it is running.
    """
    layout = Layout(directory)
    limiter = trio.CapacityLimiter(1)
    if await trio.to_thread.run_sync(directory.is_dir, limiter=limiter):
        async with _lock(layout, limiter, 0.0):
            await _in_thread(layout, limiter, layout.drop)


@final
class _Build:
    def __init__(
        self,
        me: Actor,
        layout: Layout,
        limiter: trio.CapacityLimiter,
        start: BuildStart,
        tell: Callable[[Progress], None],
    ) -> None:
        self._me = me
        self._layout = layout
        self._limiter = limiter
        self._start = start
        self._tell = tell
        self.added = self.changed = self.removed = self.unchanged = self.embedded = 0
        self.unreadable: list[Unreadable] = []
        self._lost: list[Known] = []
        self.generation = start.number
        self.chunks = start.meta.chunks if start.meta else 0

    async def _do(self, work: Callable[[], T]) -> T:
        return await _in_thread(self._layout, self._limiter, work)

    async def keep(self, recipe: bytes) -> None:
        await self._do(partial(self._layout.keep_recipe, recipe))

    async def read(self, sources: AsyncIterable[Source | Unreadable], splitter: Splitter) -> None:
        """Record every source that is not as it was, and remove those that are no more."""
        seen: set[str] = set()
        async for source in sources:
            if isinstance(source, Unreadable):
                self.unreadable.append(source)
            elif source.source not in seen:
                seen.add(source.source)
                await self._look_at(source, splitter)
                self._tell(Progress(phase="read", done=len(seen), source=source.source))
        kept = Kept(self.unreadable)
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
        lost = Lost(told=tuple(self.unreadable), sources=tuple(self._lost))
        await self._do(partial(self._layout.keep_lost, lost))

    def _would_empty_it(self) -> bool:
        """Whether a rebuild has found nothing that could be read; it is given up then."""
        work, replaces = self._start.work, self._start.number and not self._start.meta
        if work is None or not replaces or not self.unreadable or work.counts()[1]:
            return False
        work.close()
        self._layout.drop_building()
        return True

    async def _look_at(self, source: Source, splitter: Splitter) -> None:
        if not is_unicode(source.source):
            self.unreadable.append(no_unicode(source.source))
            return
        known = self._start.known.get(source.source)
        if known is not None and known.digest and same_stamp(known, source):
            self._count(known)
            return
        digest = await source.digest()
        if isinstance(digest, Unreadable):
            self.unreadable.append(digest)
            self._lost.append(Known(source.source, "", source.size, None))
            return
        if known is not None and known.digest == digest:
            self._count(known)
            return
        found = await source.documents()
        pieces, unreadable = await trio.to_thread.run_sync(split_up, splitter, found, limiter=self._limiter)
        self.unreadable += unreadable
        mtime = source.mtime  # unless it is so young that another change could have the same
        mtime = mtime if mtime is not None and time.time() - mtime > YOUNG else None
        entry = Known(source.source, digest, source.size, mtime)
        if unreadable and not pieces:
            self._lost.append(entry)
            return
        await self._do(lambda: self._start.begin().record(entry, pieces))
        self._count(entry)

    def _remove(self, name: str) -> None:
        self._start.begin().remove(name)

    def _count(self, entry: Known) -> None:
        before = self._start.before.get(entry.source)
        if before is None:
            self.added += 1
        elif before.digest != entry.digest:
            self.changed += 1
        else:
            self.unchanged += 1

    async def embed(self, work: Work, embedder: Embedder) -> int:
        """Give every new chunk a vector; how many numbers these have."""
        meta = self._start.meta
        dimension = (meta.dimension if meta else 0) or await self._do(work.dimension)
        total = await self._do(work.pending_count)
        began, last = trio.current_time(), 0
        while rows := await self._do(partial(work.pending, last, self._start.settings.block)):
            pace = (trio.current_time() - began) / self.embedded if self.embedded else None
            left = None if pace is None else pace * (total - self.embedded)
            self._tell(Progress(phase="embed", done=self.embedded, total=total, seconds_left=left))
            matrix = await embedder.embed(self._me, [embedded_text(row.chunk) for row in rows])
            checked = partial(halves, matrix, len(rows), dimension, embedder.model)
            vectors = await trio.to_thread.run_sync(checked, limiter=self._limiter)
            await self._do(partial(work.keep, list(zip([row.number for row in rows], vectors, strict=True))))
            dimension, last = len(vectors[0]) // 2, rows[-1].number
            self.embedded += len(rows)
        if total:
            self._tell(Progress(phase="embed", done=self.embedded, total=total, seconds_left=0.0))
        return dimension

    async def finish(self, work: Work, dimension: int) -> None:
        number = self._start.number + 1
        _, self.chunks = await self._do(work.counts)
        steps = finish(work, number, dimension)
        while (step := await self._do(partial(next, steps, None))) is not None:
            self._tell(Progress(phase="index", done=step[0], total=step[1]))
        self.generation = number


async def _in_thread(layout: Layout, limiter: trio.CapacityLimiter, work: Callable[[], T]) -> T:
    """Do something to the files of the base, in the thread of this build."""

    def watched() -> T:
        with told(layout):
            return work()

    return await trio.to_thread.run_sync(watched, limiter=limiter)


@asynccontextmanager
async def _lock(layout: Layout, limiter: trio.CapacityLimiter, wait: float) -> AsyncIterator[None]:
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
    """The start of a build: the generation before, and the rest of an interrupted build. All of it blocks.

    Attributes:
        settings: what is built with.
        number: the current generation; 0 if there is none.
        meta: of the generation that is built upon; None if it is none.
        before: its sources.
        known: the sources with what an interrupted build has read already.
        work: the unfinished generation; None until the first difference shows.
    """

    def __init__(
        self, layout: Layout, model: str, dimension: int | None, settings: Settings | None, *, rebuild: bool
    ) -> None:
        self._layout = layout
        self._model = model
        with told(layout):
            self.number = layout.settle(rebuild=rebuild)
            layout.sweep()
        base = 0 if rebuild else self.number
        self.meta: Meta | None = layout.meta(base) if base else None
        with told(layout):
            self.work: Work | None = unfinished(layout, self.number, model, settings, rebuild=rebuild)
        if self.work is not None and not self.work.plan.base:
            self.meta = None  # a rebuild was interrupted, and is gone on with
        if self.work is not None:
            self.settings = self.work.plan.settings
        else:
            self.settings = settings or (self.meta.settings if self.meta else Settings())
            check_language(self.settings.language)
        if self.meta is not None:
            self._check(self.meta, dimension)
        self.before: dict[str, Known] = {}
        with told(layout):
            if self.meta is not None:
                catalogue = Catalogue(layout.generation(self.meta.generation) / "catalogue.sqlite")
                self.before = catalogue.known()
                catalogue.close()
            if self.meta is None or not self.settings.splits_as(self.meta.settings):
                self.begin()
            self.known = self.work.known() if self.work else self.before

    def begin(self) -> Work:
        """The unfinished generation, which is made if there is none yet."""
        if self.work is None:
            base = self.meta.generation if self.meta else 0
            resplit = self.meta is not None and not self.settings.splits_as(self.meta.settings)
            self.work = begin(self._layout, base, self._model, self.settings, resplit=resplit)
        return self.work

    def _check(self, meta: Meta, dimension: int | None) -> None:
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
