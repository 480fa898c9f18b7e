"""Two rankings made one, by the documented constants."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.work.knowledge.base.base import WORDS_WEIGHT, by_ranks, candidates, weighted, words_weight

SCORES = st.dictionaries(st.integers(0, 50), st.floats(-1, 1), max_size=20)
RANKING = st.lists(st.integers(0, 50), max_size=20, unique=True)


def test_case_96_first_of_both_lists_is_best_and_vectors_weigh_more() -> None:
    ranked = by_ranks([1, 2], [1, 3], top_k=5)
    assert ranked[0] == (1, pytest.approx(1.125 / 11 + 1 / 11))
    [(first, _), (second, _)] = by_ranks([7], [8], top_k=5)
    assert (first, second) == (7, 8)
    assert candidates("ranks", 5) == 5


@settings(deadline=None)
@given(vectors=RANKING, words=RANKING)
def test_ranks_lose_nobody_and_are_sorted(vectors: list[int], words: list[int]) -> None:
    ranked = by_ranks(vectors, words, top_k=5)
    assert {number for number, _ in ranked} == {*vectors, *words}
    assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)


def test_words_decide_between_chunks_that_are_as_near() -> None:
    assert weighted({1: 0.5, 2: 0.5}, [(2, 9.0), (1, 3.0)], 0.05) == [
        (2, pytest.approx(0.55)),
        (1, pytest.approx(0.5 + 0.05 / 3)),
    ]


def test_words_alone_and_vectors_alone_rank_as_they_do() -> None:
    assert weighted({}, [(4, 8.0), (3, 4.0)], 0.05) == [(4, pytest.approx(0.05)), (3, pytest.approx(0.025))]
    assert weighted({4: 0.1, 3: 0.9}, [], 0.05) == [(3, 0.9), (4, 0.1)]
    assert weighted({}, [], 0.05) == []


@settings(deadline=None)
@given(cosines=SCORES, words=st.dictionaries(st.integers(0, 50), st.floats(0.1, 30), max_size=20))
def test_words_never_outweigh_a_clear_difference(cosines: dict[int, float], words: dict[int, float]) -> None:
    found = sorted(words.items(), key=lambda each: -each[1])
    ranked = dict(weighted(cosines, found, WORDS_WEIGHT))
    for one, near in cosines.items():
        for other, nearer in cosines.items():
            if nearer > near + 0.051:
                assert ranked[other] > ranked[one]


def test_words_weigh_more_beside_vectors_that_are_means_of_words() -> None:
    static, other = words_weight("local:static"), words_weight("openai:text-embedding-3-small")
    assert static > other == WORDS_WEIGHT
    cosines, words = {1: 0.5, 2: 0.4}, [(2, 9.0)]
    assert [number for number, _ in weighted(cosines, words, static)] == [2, 1]
    assert [number for number, _ in weighted(cosines, words, other)] == [1, 2]
