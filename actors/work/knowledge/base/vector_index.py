"""Vector index: cosine similarity over 16 bit floats, keyed by chunk number.

Up to `exact_below` chunks it is a plain matrix (`vectors.npy` with `numbers.npy`), and every row is compared: 20,000
rows take 2 to 5 ms, and nothing has to be built. Above it, a graph (`vectors.usearch`, HNSW) finds the nearest vectors.
Adding a vector to the graph takes most of a millisecond, so a new generation extends the graph of the previous one.
Both are read through memory maps, which opens them in milliseconds and lets processes share them.
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
"""Slices of chunk numbers and vectors, each vector as the bytes of 16 bit floats."""

CONNECTIVITY = 16
EXPANSION_ADD = 64
"""Half of usearch's default: a third of its time, for a recall of 0.999 (100,000 vectors, 384 numbers)."""

FEW = 2_000
"""Most chunks of a filter that are read from a graph and compared exactly; above it, the graph is searched."""

SLICE = 1_000
"""Vectors between two steps of a build: about a second of work in a graph."""


GRAPH = "vectors.usearch"
MATRIX = "vectors.npy"
NUMBERS = "numbers.npy"


class VectorIndex(ABC):
    """Vectors of a finished generation. Its methods block and are thread-safe."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _numbers(self) -> Numbers:
        """Return all chunk numbers, sorted."""

    @abstractmethod
    def _rows(self, numbers: Numbers) -> Halves:
        """Return the vectors of these chunks."""

    @abstractmethod
    def search(self, query: Floats, limit: int, among: Numbers | None = None) -> list[tuple[int, float]]:
        """Return the nearest chunks by number, with their cosine similarity; best first.

        Args:
            query: a vector of length 1.
            among: search only these chunk numbers, which are sorted.
        """

    def similarity(self, query: Floats, numbers: Sequence[int]) -> dict[int, float]:
        """Return the cosine similarity of these chunks."""
        import numpy as np

        if not len(self):
            return {}
        matrix = self._rows(np.asarray(numbers, dtype=np.int64)).astype(np.float32)
        return dict(zip(numbers, (matrix @ query).tolist(), strict=True))

    def export(self) -> Iterator[tuple[Numbers, Halves]]:
        """Yield all numbers and vectors, a slice at a time."""
        numbers = self._numbers()
        for start in range(0, len(numbers), SLICE):
            some = numbers[start : start + SLICE]
            yield some, self._rows(some)


def open_vectors(directory: Path) -> VectorIndex:
    """Open the index of the generation in this directory: the graph if there is one, else the matrix."""
    path = directory / GRAPH
    return NearVectorGraph(path) if path.exists() else Matrix(directory)


@final
class Matrix(VectorIndex):
    """Exact vector index: a matrix with one row per vector, all of which are compared."""

    def __init__(self, directory: Path) -> None:
        import numpy as np

        self._order: Numbers = np.load(directory / NUMBERS)
        # NumPy can't map an array without rows.
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
class NearVectorGraph(VectorIndex):
    """Approximate vector index: an HNSW graph, in which a search compares few vectors."""

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
        # The graph is searched without the filter, so search twice as far each time until enough hits pass it.
        # If the filter's chunks are spread evenly, this many neighbours contain `limit` of them.
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
    """Write the index of a generation. Yields the number of vectors written so far, a slice at a time.

    Args:
        total: number of vectors at the end.
        before: directory of the previous generation; None if there is none.
        without: numbers of the previous generation to leave out.
        added: new vectors, with numbers above all of the previous generation.
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
    """Yield the remaining vectors of the previous generation, and then the new ones, sorted by number."""
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
        raise FileNotFoundError(f"the file {path} does not exist")
    return index


def _threads() -> int:
    """Return the number of cores minus one, which the event loop needs; at least 1."""
    return max(1, len(os.sched_getaffinity(0)) - 1)
