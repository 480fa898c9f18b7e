"""A knowledge base, open for reading.

Opening takes milliseconds for any size: files are mapped into memory, not read. All blocking work runs in threads, of
which a base has two: more would only wait for the interpreter lock and delay the event loop.

An open base reads the generation that it opened, also while a build runs; `refresh` switches to a newer one. A
`Generation` has its catalogue, its two indexes, and the lock that prevents its removal.
"""

from __future__ import annotations

import fnmatch
import math
import os
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, final

import msgspec
import trio

from .....protocol.errors import KnowledgeError
from .....protocol.knowledge import Chunk, Retrieved, Unreadable
from .bm25_index import WordIndex
from .catalogue import Catalogue, ChunkRow, KnownSource, LostSources, UnreadablePaths
from .layout import BaseLayout, knowledge_errors
from .model import GenerationMeta, KnowledgeSource, embedded_text, is_unicode, no_unicode
from .passages import retrieved
from .vector_index import open_vectors

if TYPE_CHECKING:
    from .model import Floats, Numbers


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
            fusion: how both rankings are combined; see the comment above `WORDS_WEIGHT`.
            rerank: returns new scores for the best chunks; these decide the order.

        Raises:
            KnowledgeError: the vector is not of this base's model, or files of the base are broken.
            trio.ClosedResourceError: the base was closed.
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
        """Return the sources that the last build could not read, with the reasons."""
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
        """Switch to the current generation. Return False if it is open already, or if the base was closed meanwhile.

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


# --- changes since the build: the comparison that a build makes first


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
    """Compare a base with its sources, without writing anything. Only sources that fail `same_stamp` are read."""
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
    """Return whether size, modification time and reader are unchanged, so that the source need not be read.

    False if the modification time of the last build is unknown.
    """
    stamp = (source.size, source.mtime)
    return known.mtime is not None and (known.size, known.mtime) == stamp and known.digest.startswith(source.reader)


# --- generation

Fusion: TypeAlias = Literal["weighted", "ranks"]

MOST_SELECTIONS = 32
"""Number of different filters whose documents are cached."""


class Selection(msgspec.Struct, frozen=True):
    """Documents that match filters, and the sorted numbers of their chunks."""

    documents: list[int]
    numbers: Numbers


@final
class Generation:
    """An open generation. Its methods block and are thread-safe.

    Attributes:
        meta: its metadata.
        catalogue: its sources and chunks.
        readers: number of reads in progress.
        retired: the last reader must close it.
    """

    def __init__(self, layout: BaseLayout) -> None:
        with knowledge_errors(layout), ExitStack() as opened:
            number, lock = layout.read_lock()
            opened.callback(os.close, lock)
            self._lock = lock
            self.meta: GenerationMeta = layout.meta(number)
            home = layout.generation(number)
            self.catalogue = Catalogue(home / "catalogue.sqlite")
            opened.callback(self.catalogue.close)
            self._words = WordIndex(home / "words", self.meta.settings.language)
            self._vectors = open_vectors(home)
            self.catalogue.check()
            found = len(self._words), len(self._vectors)
            if found != (self.meta.chunks, self.meta.chunks):
                raise ValueError(f"its word index and its vectors have {found} chunks instead of {self.meta.chunks}")
            self._opened = opened.pop_all()
        self.readers = 0
        self.retired = False
        self._selections: dict[tuple[str, ...], Selection] = {}

    def is_current(self, layout: BaseLayout) -> bool:
        """Return whether this is still the current generation.

        The number alone is not enough: a base may have been removed and built again.
        """
        with knowledge_errors(layout):
            return layout.number() == self.meta.generation and layout.is_of(self._lock, self.meta.generation)

    def close(self) -> None:
        """Close the files and release the lock."""
        del self._words, self._vectors
        self._opened.close()

    def find(
        self, text: str, vector: Floats | None, limit: int, filters: tuple[str, ...], fusion: Fusion
    ) -> list[tuple[ChunkRow, float]]:
        """Return the chunks that fit a query best, with their scores; best first. See `KnowledgeBase.retrieve`.

        Raises:
            KnowledgeError: the vector is not of this base's model.
        """
        among = self._selection(filters) if filters else None
        if among is not None and not len(among.numbers):
            return []
        side = candidates(fusion, limit)
        words = self._words.search(text, side, among.documents if among else None) if text else []
        vector = None if vector is None else self._direction(vector)
        near = [] if vector is None else self._vectors.search(vector, side, among.numbers if among else None)
        if fusion == "ranks":
            ranked = by_ranks([number for number, _ in near], [number for number, _ in words], limit)
        else:
            weight = words_weight(self.meta.model)
            cosines = dict(near)
            # Hits of the word index need a cosine as well: a missing one would count as 0.
            if vector is not None and (missing := [number for number, _ in words if number not in cosines]):
                cosines |= self._vectors.similarity(vector, missing)
            ranked = weighted(cosines, words, weight)
        ranked = ranked[:limit]
        rows = self.catalogue.rows([number for number, _ in ranked])
        return [(rows[number], score) for number, score in ranked]

    def _direction(self, vector: Floats) -> Floats | None:
        """Return the vector with length 1; None if it has length 0, as for a text without known words."""
        import numpy as np

        if vector.shape != (self.meta.dimension,) and self.meta.chunks:
            raise KnowledgeError(
                f"the vectors of this knowledge base have {self.meta.dimension} numbers (model "
                f"{self.meta.model!r}), and the vector of the query has {vector.size}: embed queries with "
                "the same model, or rebuild the base"
            )
        plain = np.asarray(vector, dtype=np.float32)
        length = float(np.linalg.norm(plain))
        return plain / length if 0 < length < math.inf else None

    def _selection(self, filters: tuple[str, ...]) -> Selection:
        """Return the documents that match one of these filters. Cached, because a generation never changes."""
        import numpy as np

        if (known := self._selections.get(filters)) is not None:
            return known
        fits = re.compile("|".join(map(fnmatch.translate, filters))).match
        documents = [id for id, source in self.catalogue.documents() if fits(source)]
        selection = Selection(documents, np.sort(np.array(self.catalogue.numbers(documents), dtype=np.int64)))
        if len(self._selections) >= MOST_SELECTIONS:
            self._selections.clear()
        self._selections[filters] = selection
        return selection


# --- fusion of two rankings: from the vector index and from the word index
#
# `weighted` adds the scores: cosine + weight * bm25 / best bm25. With a small weight, words decide between chunks with
# about the same cosine, and add names and rare words that no vector is near to. They can't lift a chunk that only
# shares common words above a chunk that answers the query; plain reciprocal ranks do that. Vectors that are means of
# word vectors know neither order nor sense, so for them words must weigh as much as the vectors.
#
# `ranks` is reciprocal rank fusion with Loki's constants: each ranking gives weight / (2 * top_k + rank), ranks from 1;
# vectors weigh 1.125, words 1.
#
# The constants were chosen with benchmarks/retrieval.py on every other question; docs/knowledge.md has the figures.


WORDS_WEIGHT = 0.05
"""Summand that the best word score adds to a cosine."""

WORDS_WEIGHTS = {"local:static": 0.5}
"""Exceptions by embedding model, for models that know less than most."""

RANK_WEIGHTS = (1.125, 1.0)
"""Weights of vectors and of words in `by_ranks`."""

LEAST_CANDIDATES = 50
"""Fewest candidates that `weighted` gets from each index: a chunk ranked low by one may be the best of the other."""


def candidates(fusion: Fusion, top_k: int) -> int:
    """Return the number of chunks to request from each index."""
    return max(1, top_k) if fusion == "ranks" else max(LEAST_CANDIDATES, 4 * top_k)


def words_weight(model: str) -> float:
    """Return the weight of word scores for this embedding model: the best one adds this amount to the cosine
    similarity.
    """
    return WORDS_WEIGHTS.get(model, WORDS_WEIGHT)


def weighted(
    cosines: Mapping[int, float], words: Sequence[tuple[int, float]], weight: float
) -> list[tuple[int, float]]:
    """Return chunks by the sum of their scores, best first.

    Args:
        cosines: cosine of every chunk that either index found; empty without a query vector.
        words: hits of the word index, best first.
        weight: see `words_weight`.
    """
    best = words[0][1] if words else 1.0
    added = {number: weight * score / best for number, score in words}
    scores = {number: cosines.get(number, 0.0) + added.get(number, 0.0) for number in (*cosines, *added)}
    return best_first(scores)


def by_ranks(vectors: Sequence[int], words: Sequence[int], top_k: int) -> list[tuple[int, float]]:
    """Return chunks by the sum of their reciprocal ranks, best first."""
    scores: dict[int, float] = {}
    for weight, ranking in zip(RANK_WEIGHTS, (vectors, words), strict=True):
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + weight / (2 * top_k + rank)
    return best_first(scores)


def best_first(scores: Mapping[int, float]) -> list[tuple[int, float]]:
    """Sort by score; chunks with equal scores keep the order of their numbers."""
    return sorted(scores.items(), key=lambda each: (-each[1], each[0]))
