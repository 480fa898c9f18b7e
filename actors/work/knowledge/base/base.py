"""A knowledge base, open for reading.

Opening takes milliseconds, however large it is: everything is mapped into memory, not read. All that blocks is done in
threads, of which a base has two: more would only wait for the interpreter, and have the event loop wait with them.

A base goes on reading the generation it has opened, also while a build runs; `refresh` changes to a newer one.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar, final

import msgspec
import trio

from .....protocol.knowledge import Chunk, Retrieved, Unreadable
from .catalogue import Kept, Known, Lost
from .generation import Fusion, Generation, best_first
from .layout import Layout
from .model import Meta, Source, embedded_text, is_unicode, no_unicode
from .passages import retrieved

if TYPE_CHECKING:
    from .model import Floats

T = TypeVar("T")

THREADS = 2
TOP_K = 5

RERANKED = 4
"""A reranker sees so many times the chunks that are wanted."""

EXPORTED_AT_ONCE = 500

Rerank: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[float]]]
"""How well each of these texts answers the query: one score per text, the higher the better."""


@final
class Base:
    """See the module. Any task may use it, many at once."""

    def __init__(self, layout: Layout, generation: Generation, limiter: trio.CapacityLimiter) -> None:
        self._layout = layout
        self._generation = generation
        self._limiter = limiter
        self._refreshing = trio.Lock()
        self._closed = False

    @classmethod
    async def open(cls, directory: Path) -> Base:
        """Open the base in this directory.

        Raises:
            KnowledgeMissing: nothing was built there.
            KnowledgeError: what is there is broken, or of another version; the text says what to run.
        """
        limiter = trio.CapacityLimiter(THREADS)
        layout = Layout(directory)
        return cls(layout, await _opened(layout, limiter), limiter)

    @property
    def meta(self) -> Meta:
        """What the open generation says of itself: its model, its settings, its size."""
        return self._generation.meta

    @property
    def directory(self) -> Path:
        """Where it is."""
        return self._layout.directory

    async def retrieve(
        self,
        text: str,
        vector: Floats | None,
        *,
        top_k: int = TOP_K,
        filters: Sequence[str] = (),
        min_score: float = 0.0,
        fusion: Fusion = "weighted",
        rerank: Rerank | None = None,
    ) -> Retrieved:
        """What fits a query best.

        Args:
            text: the query, for the index of words; empty to look at vectors only.
            vector: the query, embedded with the model of this base; None to look at words only.
            top_k: chunks to find. Neighbours are merged, so there may be fewer hits.
            filters: patterns of sources (`docs/*.md`; `*` stands for any text, slashes too), of which one must fit.
            min_score: chunks must have more, before they are reranked. What it means depends on `fusion`.
            fusion: see the module of that name.
            rerank: gives new scores to the best of what was found; those decide.

        Raises:
            KnowledgeError: the vector is not of this base's model, or its files broke.
        """
        limit = top_k * RERANKED if rerank else top_k
        async with self._reading() as generation:
            find = partial(generation.find, text, vector, limit, tuple(sorted(set(filters))), fusion)
            ranked = await self._in_thread(find)
        found = [each for each in ranked if each[1] > min_score]
        if rerank and found:
            scores = await rerank([embedded_text(row.chunk) for row, _ in found])
            better = best_first(dict(enumerate(map(float, scores))))
            found = [(found[place][0], score) for place, score in better]
        return await self._in_thread(partial(retrieved, found[:top_k]))

    async def sources(self) -> list[Known]:
        """All sources, by name."""
        async with self._reading() as generation:
            return list((await self._in_thread(generation.catalogue.known)).values())

    async def lost(self) -> Lost:
        """What the last build could not read."""
        return await self._in_thread(self._layout.lost)

    async def export(self, write: Callable[[Sequence[Chunk]], None]) -> None:
        """All chunks, document by document: `write` is called with some at a time, in a thread."""
        async with self._reading() as generation:
            after = (0, -1)
            while rows := await self._in_thread(partial(generation.catalogue.slice, after, EXPORTED_AT_ONCE)):
                await self._in_thread(partial(write, [row.chunk for row in rows]))
                after = (rows[-1].document, rows[-1].ordinal)

    async def refresh(self) -> bool:
        """Change to the current generation; whether there was another one. Who reads the old one finishes with it."""
        async with self._refreshing, self._reading() as old:
            if await self._in_thread(partial(old.is_current, self._layout)):
                return False
            newer = await _opened(self._layout, self._limiter)
            if self._closed:
                newer.close()
                return False
            self._generation = newer
            self._retire(old)
            return True

    def close(self) -> None:
        """Close the files, after the last read. Harmless when it is closed already."""
        if not self._closed:
            self._closed = True
            self._retire(self._generation)

    # --- one generation ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Generation]:
        if self._closed:
            raise trio.ClosedResourceError(f"{self.directory} was closed")
        generation = self._generation
        generation.readers += 1
        try:
            yield generation
        finally:
            generation.readers -= 1
            if generation.retired and not generation.readers:
                generation.close()

    def _retire(self, generation: Generation) -> None:
        generation.retired = True
        if not generation.readers:
            generation.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)


async def _opened(layout: Layout, limiter: trio.CapacityLimiter) -> Generation:
    return await trio.to_thread.run_sync(Generation, layout, limiter=limiter)


# --- what has changed since it was built: the same look that a build takes first, without doing anything


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Names of sources that differ from what a base holds; all empty if it is up to date.

    Attributes:
        added, changed, removed: what a build would report.
        unreadable: what can't be compared.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


async def changes(base: Base, sources: AsyncIterable[Source | Unreadable]) -> Changes:
    """Compare a base with its sources. Reads only those whose size or time of change is another or unknown."""
    known = {each.source: each for each in await base.sources()}
    lost = {each.source: each for each in (await base.lost()).sources}
    seen: set[str] = set()
    added: list[str] = []
    changed: list[str] = []
    unreadable: list[Unreadable] = []
    async for source in sources:
        if isinstance(source, Unreadable):
            unreadable.append(source)
            continue
        name = source.source
        if name in seen:
            continue
        if not is_unicode(name):
            unreadable.append(no_unicode(name))
            continue
        seen.add(name)
        before = [each[name] for each in (known, lost) if name in each]
        if not before:
            added.append(name)
        elif not any(same_stamp(each, source) for each in before):
            digest = await source.digest()
            if isinstance(digest, Unreadable):
                unreadable.append(digest)
            elif all(digest != each.digest for each in before):
                (changed if name in known else added).append(name)
    kept = Kept(unreadable)
    removed = (name for name in known if name not in seen and not kept.has(name))
    return Changes(added=tuple(added), changed=tuple(changed), removed=tuple(removed), unreadable=tuple(unreadable))


def same_stamp(known: Known, source: Source) -> bool:
    """Whether size, time of change and reader are as they were, so it need not be read."""
    stamp = (source.size, source.mtime)
    return known.mtime is not None and (known.size, known.mtime) == stamp and known.digest.startswith(source.reader)
