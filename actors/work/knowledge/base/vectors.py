"""The index of vectors: cosine similarity over 16 bit floats, by the number of the chunk.

Up to `exact_below` chunks it is a plain matrix (`vectors.npy` with `numbers.npy`), and every row is compared: 20,000
take 2 to 5 ms, and nothing has to be built. Beyond it, a graph (`vectors.usearch`, HNSW) finds the near ones; adding a
vector to that takes most of a millisecond, so a new generation goes on with the graph of the one before. Both are
mapped into memory to be read, which opens them in milliseconds and lets processes share them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, final

if TYPE_CHECKING:
    from usearch.index import Index

    from .model import Floats, Halves, Numbers

Vectors: TypeAlias = Iterable[Sequence[tuple[int, bytes]]]
"""Numbers and vectors in their 16 bit bytes, a slice at a time."""

CONNECTIVITY = 16
EXPANSION_ADD = 64
"""Half of usearch's own: a third of its time, for a recall of 0.999 (100,000 vectors, 384 numbers)."""

FEW = 2_000
"""Up to so many chunks that a filter leaves are taken out of a graph and compared; beyond, the near ones are sought."""

SLICE = 1_000
"""Vectors between two steps of a build: about a second of work in a graph."""


GRAPH = "vectors.usearch"
MATRIX = "vectors.npy"
NUMBERS = "numbers.npy"


class VectorIndex(ABC):
    """The vectors of a finished generation. Everything here blocks; any thread may call it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _numbers(self) -> Numbers:
        """All of them, sorted."""

    @abstractmethod
    def _rows(self, numbers: Numbers) -> Halves:
        """The vectors of these."""

    @abstractmethod
    def search(self, query: Floats, limit: int, among: Numbers | None = None) -> list[tuple[int, float]]:
        """The nearest chunks by number, with their cosine similarity; best first.

        Args:
            query: a vector of length 1.
            among: look only at these, which are sorted.
        """

    def similarity(self, query: Floats, numbers: Sequence[int]) -> dict[int, float]:
        """How near these chunks are."""
        import numpy as np

        if not len(self):
            return {}
        matrix = self._rows(np.asarray(numbers, dtype=np.int64)).astype(np.float32)
        return dict(zip(numbers, (matrix @ query).tolist(), strict=True))

    def export(self) -> Iterator[tuple[Numbers, Halves]]:
        """All of it, a slice at a time."""
        numbers = self._numbers()
        for start in range(0, len(numbers), SLICE):
            some = numbers[start : start + SLICE]
            yield some, self._rows(some)


def open_vectors(directory: Path) -> VectorIndex:
    """The index of the generation in this directory."""
    path = directory / GRAPH
    return Graph(path) if path.exists() else Matrix(directory)


@final
class Matrix(VectorIndex):
    """All vectors one below the other."""

    def __init__(self, directory: Path) -> None:
        import numpy as np

        self._order: Numbers = np.load(directory / NUMBERS)
        self._matrix: Halves = np.load(directory / MATRIX, mmap_mode="r" if len(self._order) else None)

    def __len__(self) -> int:
        return len(self._order)

    def _numbers(self) -> Numbers:
        return self._order

    def _rows(self, numbers: Numbers) -> Halves:
        import numpy as np

        return self._matrix[np.searchsorted(self._order, numbers)]

    def search(self, query: Floats, limit: int, among: Numbers | None = None) -> list[tuple[int, float]]:
        if among is None:
            return _compared(self._order, self._matrix, query, limit)
        return _compared(among, self._rows(among), query, limit)


@final
class Graph(VectorIndex):
    """A graph of near vectors."""

    def __init__(self, path: Path) -> None:
        self._index = _restored(path, view=True)

    def __len__(self) -> int:
        return len(self._index)

    def _numbers(self) -> Numbers:
        import numpy as np

        return np.sort(np.asarray(self._index.keys, dtype=np.int64))

    def _rows(self, numbers: Numbers) -> Halves:
        import numpy as np

        found = self._index.get(numbers)
        assert isinstance(found, tuple)
        return np.vstack([each for each in found if each is not None])

    def search(self, query: Floats, limit: int, among: Numbers | None = None) -> list[tuple[int, float]]:
        if among is None:
            return self._nearest(query, limit)
        if len(among) <= FEW:
            return _compared(among, self._rows(among), query, limit)
        wanted, reach = frozenset(among.tolist()), limit * len(self) // len(among)
        while True:
            reach = min(2 * reach, len(self))
            found = [each for each in self._nearest(query, reach) if each[0] in wanted]
            if len(found) >= limit or reach == len(self):
                return found[:limit]

    def _nearest(self, query: Floats, limit: int) -> list[tuple[int, float]]:
        found = self._index.search(query, min(limit, len(self)), threads=1)
        return list(zip(found.keys.tolist(), (1.0 - found.distances).tolist(), strict=True))


def _compared(numbers: Numbers, matrix: Halves, query: Floats, limit: int) -> list[tuple[int, float]]:
    import numpy as np
    from usearch.index import search

    if not len(numbers):
        return []
    found = search(matrix, query.astype(np.float16), min(limit, len(numbers)), exact=True, threads=1)
    return list(zip(numbers[found.keys].tolist(), (1.0 - found.distances).tolist(), strict=True))


def write_vectors(
    directory: Path,
    dimension: int,
    total: int,
    *,
    exact_below: int,
    before: Path | None,
    without: Sequence[int],
    added: Vectors,
) -> Iterator[int]:
    """Make the index of a generation. Yields how many vectors are in so far, a slice at a time.

    Args:
        total: how many there will be.
        before: where the generation before has its own.
        without: numbers of that one that are to be left out.
        added: vectors whose numbers are above all of that one.
    """
    for name in (GRAPH, MATRIX, NUMBERS):
        (directory / name).unlink(missing_ok=True)
    graph = total > exact_below
    if graph and before is not None and (before / GRAPH).exists() and len(without) <= total:
        index = _restored(before / GRAPH, view=False)
        if without:
            index.remove(list(without))
        slices = _added(added, dimension)
        yield from _grow(index, slices, directory / GRAPH)
        return
    slices = _chained(before, without, added, dimension)
    if graph:
        from usearch.index import Index

        index = Index(ndim=dimension, metric="cos", dtype="f16", connectivity=CONNECTIVITY, expansion_add=EXPANSION_ADD)
        yield from _grow(index, slices, directory / GRAPH)
    else:
        yield from _pile(slices, total, dimension, directory)


def _grow(index: Index, slices: Iterator[tuple[Numbers, Halves]], path: Path) -> Iterator[int]:
    for numbers, matrix in slices:
        index.add(numbers, matrix, threads=_threads())
        yield len(index)
    index.save(str(path))
    yield len(index)


def _pile(slices: Iterator[tuple[Numbers, Halves]], total: int, dimension: int, directory: Path) -> Iterator[int]:
    import numpy as np

    matrix = np.zeros((total, dimension), dtype=np.float16)
    numbers = np.zeros(total, dtype=np.int64)
    done = 0
    for some, rows in slices:
        numbers[done : done + len(some)] = some
        matrix[done : done + len(some)] = rows
        done += len(some)
        yield done
    np.save(directory / NUMBERS, numbers)
    np.save(directory / MATRIX, matrix)
    yield done


def _chained(
    before: Path | None, without: Sequence[int], added: Vectors, dimension: int
) -> Iterator[tuple[Numbers, Halves]]:
    """What is kept of the generation before, and then what is new: in the order of the numbers."""
    import numpy as np

    if before is not None:
        for numbers, matrix in open_vectors(before).export():
            kept = np.isin(numbers, np.asarray(without, dtype=np.int64), invert=True)
            yield numbers[kept], matrix[kept]
    yield from _added(added, dimension)


def _added(added: Vectors, dimension: int) -> Iterator[tuple[Numbers, Halves]]:
    import numpy as np

    for some in added:
        numbers = np.array([number for number, _ in some], dtype=np.int64)
        data = b"".join(vector for _, vector in some)
        yield numbers, np.frombuffer(data, dtype=np.float16).reshape(len(some), dimension)


def _restored(path: Path, *, view: bool) -> Index:
    from usearch.index import Index

    index = Index.restore(str(path), view=view, expansion_add=EXPANSION_ADD)
    if index is None:
        raise FileNotFoundError(f"{path} is not there")
    return index


def _threads() -> int:
    """All cores but one, which the event loop needs."""
    return max(1, len(os.sched_getaffinity(0)) - 1)
