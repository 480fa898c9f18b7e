"""An open, finished generation: its catalogue, its two indexes, and the lock that prevents its removal."""

from __future__ import annotations

import fnmatch
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal, TypeAlias, final

import msgspec

from .....protocol.errors import KnowledgeError
from .bm25_index import WordIndex
from .catalogue import Catalogue, ChunkRow
from .layout import BaseLayout, knowledge_errors
from .model import GenerationMeta
from .vector_index import open_vectors

if TYPE_CHECKING:
    from .model import Floats, Numbers

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
                raise ValueError(f"its words and vectors are of {found} chunks, not of {self.meta.chunks}")
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
        """Return the best chunks with their scores, best first. See `KnowledgeBase.retrieve`.

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
                f"this knowledge base has vectors of {self.meta.dimension} numbers (model {self.meta.model!r}), and the"
                f" query's has {vector.size}: embed queries with the same model, or rebuild it"
            )
        plain = np.asarray(vector, dtype=np.float32)
        length = float(np.linalg.norm(plain))
        return plain / length if 0 < length < math.inf else None

    def _selection(self, filters: tuple[str, ...]) -> Selection:
        """Return the documents that match these filters. Cached, because a generation never changes."""
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
    """Return the summand that the best word score adds to a cosine of this embedding model."""
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
