"""The index of vectors finds what is near, as a matrix and as a graph, and one becomes the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callboard.actors.work.knowledge.base import vector_index
from callboard.actors.work.knowledge.base.vector_index import (
    Matrix,
    NearVectorGraph,
    VectorIndex,
    open_vectors,
    write_vectors,
)

SIZE = 32


def _random(count: int, seed: int = 0) -> Any:
    matrix = np.random.default_rng(seed).standard_normal((count, SIZE)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def _slices(numbers: Sequence[int], matrix: Any) -> Iterator[list[tuple[int, bytes]]]:
    rows = [(number, row.astype(np.float16).tobytes()) for number, row in zip(numbers, matrix, strict=True)]
    for start in range(0, len(rows), 100):
        yield rows[start : start + 100]


def _write(
    directory: Path,
    numbers: Sequence[int],
    matrix: Any,
    *,
    exact_below: int,
    before: Path | None = None,
    without: Sequence[int] = (),
) -> VectorIndex:
    directory.mkdir()
    kept = len(open_vectors(before)) - len(without) if before else 0
    total = kept + len(numbers)
    steps = write_vectors(
        directory,
        SIZE,
        total,
        exact_below=exact_below,
        before=before,
        without=without,
        added=_slices(numbers, matrix),
    )
    *_, last = steps
    assert last == total
    return open_vectors(directory)


@pytest.mark.parametrize("exact_below", [10_000, 0])
def test_the_nearest_are_found(tmp_path: Path, exact_below: int) -> None:
    matrix = _random(1000)
    numbers = list(range(5, 2005, 2))
    index = _write(tmp_path / "a", numbers, matrix, exact_below=exact_below)
    assert isinstance(index, NearVectorGraph if exact_below == 0 else Matrix)
    assert len(index) == 1000
    found = 0
    for query in _random(50, seed=1):
        cosines = matrix @ query
        best = {numbers[row] for row in np.argsort(-cosines)[:10]}
        near = index.search(query, 10)
        assert [score for _, score in near] == sorted((score for _, score in near), reverse=True)
        assert near[0][1] == pytest.approx(float(cosines.max()), abs=0.01)
        found += len(best & {number for number, _ in near})
        asked = [5, 1005, 2003]
        assert index.similarity(query, asked) == pytest.approx(
            {number: float(cosines[(number - 5) // 2]) for number in asked}, abs=0.01
        )
    assert found >= 0.95 * 500


@pytest.mark.parametrize("exact_below", [10_000, 0])
@pytest.mark.parametrize("every", [100, 2])
def test_the_nearest_of_some_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact_below: int, every: int
) -> None:
    monkeypatch.setattr(vector_index, "FEW", 100)
    matrix = _random(1000)
    index = _write(tmp_path / "a", range(1000), matrix, exact_below=exact_below)
    among = np.arange(0, 1000, every)
    for query in _random(20, seed=1):
        near = index.search(query, 5, among)
        assert len(near) == 5
        cosines = matrix[among] @ query
        assert near[0] == (among[cosines.argmax()], pytest.approx(float(cosines.max()), abs=0.01))
    assert len(index.search(matrix[0], 1000, among)) == len(among)


@pytest.mark.parametrize("exact_below", [10_000, 0])
def test_all_can_be_had_in_the_order_of_their_numbers(tmp_path: Path, exact_below: int) -> None:
    numbers = list(range(5, 2005, 2))
    index = _write(tmp_path / "a", numbers, _random(1000), exact_below=exact_below)
    exported = np.concatenate([numbers for numbers, _ in index.export()]).tolist()
    assert exported == numbers


@pytest.mark.parametrize("first", [10_000, 0])
@pytest.mark.parametrize("second", [10_000, 0])
def test_a_generation_has_what_was_kept_and_what_is_new(tmp_path: Path, first: int, second: int) -> None:
    matrix = _random(400)
    _write(tmp_path / "a", range(300), matrix[:300], exact_below=first)
    gone = list(range(0, 300, 3))
    index = _write(
        tmp_path / "b", range(300, 400), matrix[300:], exact_below=second, before=tmp_path / "a", without=gone
    )
    there = set(range(400)) - set(gone)
    for number in range(400):
        [(nearest, score)] = index.search(matrix[number], 1)
        assert (nearest == number) == (number in there)
        assert (score > 0.999) == (number in there)
    assert {number for numbers, _ in index.export() for number in numbers.tolist()} == there


@pytest.mark.parametrize("exact_below", [10_000, 0])
def test_the_last_vector_may_go(tmp_path: Path, exact_below: int) -> None:
    _write(tmp_path / "a", [1, 2], _random(2), exact_below=exact_below)
    index = _write(tmp_path / "b", [], _random(0), exact_below=exact_below, before=tmp_path / "a", without=[1, 2])
    assert len(index) == 0
    assert index.search(_random(1)[0], 5) == []
