"""A finished generation, opened: its catalogue and its two indexes, and the lock that keeps it from being removed."""

from __future__ import annotations

import fnmatch
import math
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, final

import msgspec

from .....protocol.errors import KnowledgeError
from . import fusion
from .catalogue import Catalogue, Row
from .model import Meta
from .places import Places
from .troubles import told
from .vectors import open_vectors
from .words import Words

if TYPE_CHECKING:
    from .model import Floats, Numbers

MOST_SELECTIONS = 32
"""Different filters whose documents are remembered."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for.

    Attributes:
        text: for the index of words; empty to leave that out.
        vector: for the index of vectors; its length does not matter; None to leave that out.
        limit: chunks wanted.
        filters: patterns of sources, of which one must fit; none for all sources.
        fusion: how the two rankings are made one.
    """

    text: str
    vector: Floats | None
    limit: int
    filters: tuple[str, ...] = ()
    fusion: fusion.Fusion = "weighted"


class Selection(msgspec.Struct, frozen=True):
    """The documents that filters leave, and the chunks of these, sorted."""

    documents: list[int]
    numbers: Numbers


@final
class Generation:
    """See the module. Everything here blocks; any thread may call it.

    Attributes:
        meta: what it says of itself.
        readers: how many use it at this moment.
        retired: it is to be closed by the last of them.
    """

    def __init__(self, places: Places) -> None:
        with told(places), ExitStack() as opened:
            number, lock = places.read_lock()
            opened.callback(os.close, lock)
            self._lock = lock
            self.meta: Meta = places.meta(number)
            home = places.generation(number)
            self._catalogue = Catalogue(home / "catalogue.sqlite")
            opened.callback(self._catalogue.close)
            self._words = Words(home / "words", self.meta.settings.language)
            self._vectors = open_vectors(home)
            self._check()
            self._opened = opened.pop_all()
        self.readers = 0
        self.retired = False
        self._selections: dict[tuple[str, ...], Selection] = {}

    def _check(self) -> None:
        self._catalogue.check()
        found = len(self._words), len(self._vectors)
        if found != (self.meta.chunks, self.meta.chunks):
            raise ValueError(f"its words and vectors are of {found} chunks, not of {self.meta.chunks}")

    def is_current(self, places: Places) -> bool:
        """Whether it is still the one to be read. A number says little: a base may have been removed and made anew."""
        with told(places):
            return places.number() == self.meta.generation and places.is_of(self._lock, self.meta.generation)

    def close(self) -> None:
        """Give files and lock back."""
        del self._words, self._vectors
        self._opened.close()

    @property
    def catalogue(self) -> Catalogue:
        """Its sources and chunks."""
        return self._catalogue

    def find(self, query: Query) -> list[tuple[Row, float]]:
        """The chunks that fit best, with their scores; best first.

        Raises:
            KnowledgeError: the vector is not of this base's model.
        """
        among = self._selection(query.filters) if query.filters else None
        if among is not None and not len(among.numbers):
            return []
        side = fusion.candidates(query.fusion, query.limit)
        words = self._words.search(query.text, side, among.documents if among else None) if query.text else []
        vector = None if query.vector is None else self._direction(query.vector)
        near = [] if vector is None else self._vectors.search(vector, side, among.numbers if among else None)
        if query.fusion == "ranks":
            ranked = fusion.by_ranks([number for number, _ in near], [number for number, _ in words], query.limit)
        else:
            weight = fusion.words_weight(self.meta.model)
            ranked = fusion.weighted(self._cosines(vector, near, words), words, weight)
        ranked = ranked[: query.limit]
        rows = self._catalogue.rows([number for number, _ in ranked])
        return [(rows[number], score) for number, score in ranked]

    def _cosines(
        self, vector: Floats | None, near: Sequence[tuple[int, float]], words: Sequence[tuple[int, float]]
    ) -> dict[int, float]:
        """How near each chunk is that either side found."""
        cosines = dict(near)
        missing = [number for number, _ in words if number not in cosines]
        if vector is not None and missing:
            cosines |= self._vectors.similarity(vector, missing)
        return cosines

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
        documents = [id for id, source in self._catalogue.documents() if fits(source)]
        selection = Selection(documents, np.sort(np.array(self._catalogue.numbers(documents), dtype=np.int64)))
        if len(self._selections) >= MOST_SELECTIONS:
            self._selections.clear()
        self._selections[filters] = selection
        return selection
