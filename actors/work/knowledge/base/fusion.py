"""Two rankings made one: what the index of vectors found, and what the index of words found.

`weighted` adds the scores: cosine + weight * bm25 / best bm25. With a small weight words decide between chunks that are
about as near, and bring in names and rare words that no vector is near to; they can't push a chunk that only shares
common words above one that says what was asked for, which plain reciprocal ranks do. Beside vectors that are means of
words themselves, and know neither order nor sense, words have to weigh as much as the vectors do.

`ranks` is reciprocal rank fusion with Loki's constants: each ranking gives weight / (2 * top_k + rank), ranks from 1;
vectors weigh 1.125, words 1.

The constants were chosen with benchmarks/retrieval.py on every other question; docs/knowledge.md has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

Fusion: TypeAlias = Literal["weighted", "ranks"]

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
