"""A knowledge base, open for reading.

Opening takes milliseconds for any size: files are mapped into memory, not read. All blocking work runs in threads, of
which a base has two: more would only wait for the interpreter lock and delay the event loop.

An open base reads the generation that it opened, also while a build runs; `refresh` switches to a newer one.
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
from .catalogue import KnownSource, LostSources, UnreadablePaths
from .generation import Fusion, Generation, best_first
from .layout import BaseLayout
from .model import GenerationMeta, KnowledgeSource, embedded_text, is_unicode, no_unicode
from .passages import retrieved

if TYPE_CHECKING:
    from .model import Floats

T = TypeVar("T")

THREADS = 2
TOP_K = 5

RERANKED = 4
"""Multiple of the requested chunks that a reranker receives."""

EXPORTED_AT_ONCE = 500

Rerank: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[float]]]
"""Return the relevance of each text to the query: one score per text, the higher the better."""


@final
class KnowledgeBase:
    """Reader of a knowledge base. Any number of tasks may use it at the same time."""

    def __init__(self, layout: BaseLayout, generation: Generation, limiter: trio.CapacityLimiter) -> None:
        self._layout = layout
        self._generation = generation
        self._limiter = limiter
        self._refreshing = trio.Lock()
        self._closed = False

    @classmethod
    async def open(cls, directory: Path) -> KnowledgeBase:
        """Open the base in this directory.

        Raises:
            KnowledgeMissing: there is no base in the directory.
            KnowledgeError: the base is broken or of another version; the text names the command to run.
        """
        limiter = trio.CapacityLimiter(THREADS)
        layout = BaseLayout(directory)
        return cls(layout, await _opened(layout, limiter), limiter)

    @property
    def meta(self) -> GenerationMeta:
        """Metadata of the open generation: its model, its settings, its size."""
        return self._generation.meta

    @property
    def directory(self) -> Path:
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
        """Return the passages that fit a query best.

        Args:
            text: the query for the word index; empty to use vectors only.
            vector: the query, embedded with the model of this base; None to use words only.
            top_k: chunks to find. Neighbours are merged, so there may be fewer hits.
            filters: patterns of sources (`docs/*.md`; `*` matches any text, slashes included); one of them must match.
            min_score: chunks must score higher than this, before they are reranked. Its scale depends on `fusion`.
            fusion: how both rankings are combined; see the comment in `generation`.
            rerank: returns new scores for the best chunks; these decide the order.

        Raises:
            KnowledgeError: the vector is not of this base's model, or files of the base are broken.
        """
        limit = top_k * RERANKED if rerank else top_k
        async with self._reading() as generation:
            find = partial(generation.find, text, vector, limit, tuple(sorted(set(filters))), fusion)
            ranked = await self._in_thread(find)
        # The rows are in memory: a slow reranker does not keep the generation open.
        found = [each for each in ranked if each[1] > min_score]
        if rerank and found:
            scores = await rerank([embedded_text(row.chunk) for row, _ in found])
            better = best_first(dict(enumerate(map(float, scores))))
            found = [(found[place][0], score) for place, score in better]
        return await self._in_thread(partial(retrieved, found[:top_k]))

    async def sources(self) -> list[KnownSource]:
        """Return all sources, sorted by name."""
        async with self._reading() as generation:
            return list((await self._in_thread(generation.catalogue.known)).values())

    async def lost(self) -> LostSources:
        """Return the sources that the last build could not read."""
        return await self._in_thread(self._layout.lost)

    async def export(self, write: Callable[[Sequence[Chunk]], None]) -> None:
        """Pass all chunks to `write`, document by document.

        `write` is called in a thread, with up to `EXPORTED_AT_ONCE` chunks.
        """
        async with self._reading() as generation:
            after = (0, -1)
            while rows := await self._in_thread(partial(generation.catalogue.slice, after, EXPORTED_AT_ONCE)):
                await self._in_thread(partial(write, [row.chunk for row in rows]))
                after = (rows[-1].document, rows[-1].ordinal)

    async def refresh(self) -> bool:
        """Switch to the current generation. Return whether there was a newer one.

        Reads in progress finish with the old generation, which is closed afterwards.
        """
        # Reading holds the old generation open, so that `close` can't close it during the comparison.
        async with self._refreshing, self._reading() as old:
            if await self._in_thread(partial(old.is_current, self._layout)):
                return False
            newer = await _opened(self._layout, self._limiter)
            # `close` was called during the switch: do not leave a generation open.
            if self._closed:
                newer.close()
                return False
            self._generation = newer
            self._retire(old)
            return True

    def close(self) -> None:
        """Close the files after the last read in progress. Idempotent."""
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


async def _opened(layout: BaseLayout, limiter: trio.CapacityLimiter) -> Generation:
    return await trio.to_thread.run_sync(Generation, layout, limiter=limiter)


# --- changes since the build: the same comparison that a build makes first, without writing anything


class SourceChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Names of sources that differ from the content of a base; all empty if it is up to date.

    Attributes:
        added, changed, removed: the names that a build would report.
        unreadable: sources that can't be compared.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


async def changes(base: KnowledgeBase, sources: AsyncIterable[KnowledgeSource | Unreadable]) -> SourceChanges:
    """Compare a base with its sources. Only sources with another or unknown size or modification time are read."""
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
        # A source that the last build could not read counts as known, or each run would report it as new.
        elif not any(same_stamp(each, source) for each in before):
            digest = await source.digest()
            if isinstance(digest, Unreadable):
                unreadable.append(digest)
            elif all(digest != each.digest for each in before):
                (changed if name in known else added).append(name)
    kept = UnreadablePaths(unreadable)
    removed = (name for name in known if name not in seen and not kept.has(name))
    return SourceChanges(
        added=tuple(added), changed=tuple(changed), removed=tuple(removed), unreadable=tuple(unreadable)
    )


def same_stamp(known: KnownSource, source: KnowledgeSource) -> bool:
    """Return whether size, modification time and reader are unchanged, so that the source need not be read."""
    stamp = (source.size, source.mtime)
    return known.mtime is not None and (known.size, known.mtime) == stamp and known.digest.startswith(source.reader)
