"""A finished generation, opened: its catalogue and its two indexes, and the lock that keeps it from being removed."""

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
from .catalogue import Catalogue, Row
from .layout import Layout, told
from .model import Meta
from .vectors import open_vectors
from .words import Words

if TYPE_CHECKING:
    from .model import Floats, Numbers

Fusion: TypeAlias = Literal["weighted", "ranks"]

MOST_SELECTIONS = 32
"""Different filters whose documents are remembered."""


class Selection(msgspec.Struct, frozen=True):
    """The documents that filters leave, and the chunks of these, sorted."""

    documents: list[int]
    numbers: Numbers


@final
class Generation:
    """See the module. Everything here blocks; any thread may call it.

    Attributes:
        meta: what it says of itself.
        catalogue: its sources and chunks.
        readers: how many use it at this moment.
        retired: it is to be closed by the last of them.
    """

    def __init__(self, layout: Layout) -> None:
        with told(layout), ExitStack() as opened:
            number, lock = layout.read_lock()
            opened.callback(os.close, lock)
            self._lock = lock
            self.meta: Meta = layout.meta(number)
            home = layout.generation(number)
            self.catalogue = Catalogue(home / "catalogue.sqlite")
            opened.callback(self.catalogue.close)
            self._words = Words(home / "words", self.meta.settings.language)
            self._vectors = open_vectors(home)
            self.catalogue.check()
            found = len(self._words), len(self._vectors)
            if found != (self.meta.chunks, self.meta.chunks):
                raise ValueError(f"its words and vectors are of {found} chunks, not of {self.meta.chunks}")
            self._opened = opened.pop_all()
        self.readers = 0
        self.retired = False
        self._selections: dict[tuple[str, ...], Selection] = {}

    def is_current(self, layout: Layout) -> bool:
        """Whether it is still the one to be read. A number says little: a base may have been removed and made anew."""
        with told(layout):
            return layout.number() == self.meta.generation and layout.is_of(self._lock, self.meta.generation)

    def close(self) -> None:
        """Give files and lock back."""
        del self._words, self._vectors
        self._opened.close()

    def find(
        self, text: str, vector: Floats | None, limit: int, filters: tuple[str, ...], fusion: Fusion
    ) -> list[tuple[Row, float]]:
        """The chunks that fit best, with their scores; best first. See `Base.retrieve`.

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
            if vector is not None and (missing := [number for number, _ in words if number not in cosines]):
                cosines |= self._vectors.similarity(vector, missing)
            ranked = weighted(cosines, words, weight)
        ranked = ranked[:limit]
        rows = self.catalogue.rows([number for number, _ in ranked])
        return [(rows[number], score) for number, score in ranked]

    def _direction(self, vector: Floats) -> Floats | None:
        """The vector with length 1; None if it has no direction, as for a text without a word that the model knows."""
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
        """What these filters leave; remembered, since nothing here ever changes."""
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


# --- two rankings made one: of the index of vectors, and of the index of words
#
# `weighted` adds the scores: cosine + weight * bm25 / best bm25. With a small weight words decide between chunks that
# are about as near, and bring in names and rare words that no vector is near to; they can't push a chunk that only
# shares common words above one that says what was asked for, which plain reciprocal ranks do. Beside vectors that are
# means of words themselves, and know neither order nor sense, words have to weigh as much as the vectors do.
#
# `ranks` is reciprocal rank fusion with Loki's constants: each ranking gives weight / (2 * top_k + rank), ranks from 1;
# vectors weigh 1.125, words 1.
#
# The constants were chosen with benchmarks/retrieval.py on every other question; docs/knowledge.md has the figures.


WORDS_WEIGHT = 0.05
"""What the best score of words adds to a cosine."""

WORDS_WEIGHTS = {"local:static": 0.5}
"""The same where an embedding model knows less than most."""

RANK_WEIGHTS = (1.125, 1.0)
"""Of vectors and of words."""

LEAST_CANDIDATES = 50
"""What `weighted` has from each side at least: a chunk that one side ranks low may be the other's best."""


def candidates(fusion: Fusion, top_k: int) -> int:
    """How many chunks each side is asked for."""
    return max(1, top_k) if fusion == "ranks" else max(LEAST_CANDIDATES, 4 * top_k)


def words_weight(model: str) -> float:
    """What the best score of words adds to a cosine of this embedding model's vectors."""
    return WORDS_WEIGHTS.get(model, WORDS_WEIGHT)


def weighted(
    cosines: Mapping[int, float], words: Sequence[tuple[int, float]], weight: float
) -> list[tuple[int, float]]:
    """Chunks by the sum of their scores, best first.

    Args:
        cosines: of every chunk that either side found; empty if there was no vector to compare with.
        words: what the index of words found, best first.
        weight: see `words_weight`.
    """
    best = words[0][1] if words else 1.0
    added = {number: weight * score / best for number, score in words}
    scores = {number: cosines.get(number, 0.0) + added.get(number, 0.0) for number in (*cosines, *added)}
    return best_first(scores)


def by_ranks(vectors: Sequence[int], words: Sequence[int], top_k: int) -> list[tuple[int, float]]:
    """Chunks by the sum of their reciprocal ranks, best first."""
    scores: dict[int, float] = {}
    for weight, ranking in zip(RANK_WEIGHTS, (vectors, words), strict=True):
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + weight / (2 * top_k + rank)
    return best_first(scores)


def best_first(scores: Mapping[int, float]) -> list[tuple[int, float]]:
    """By score; chunks that are as good, in the order they were written in."""
    return sorted(scores.items(), key=lambda each: (-each[1], each[0]))
