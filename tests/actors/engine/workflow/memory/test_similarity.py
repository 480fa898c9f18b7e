"""How alike texts are, and how they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.engine.workflow.memory.stores import brief, common, likeness, plain

TEXTS = st.text("ab c.é", max_size=12)


def slowly(a: str, b: str) -> int:
    """The textbook's table."""
    row = [0] * (len(b) + 1)
    for letter in a:
        above = row[:]
        for i, other in enumerate(b):
            row[i + 1] = above[i] + 1 if letter == other else max(row[i], above[i + 1])
    return row[-1]


@given(TEXTS, TEXTS)
def test_the_common_subsequence_is_as_long_as_the_table_says(a: str, b: str) -> None:
    assert common(a, b) == slowly(a, b)


@given(TEXTS, TEXTS)
def test_likeness_is_between_nothing_and_all(a: str, b: str) -> None:
    assert 0.0 <= likeness(a, b) <= 1.0 + 1e-9


@pytest.mark.parametrize("text", ["the moon rises", "Über den Wolken", "x"])
def test_a_text_is_wholly_like_itself(text: str) -> None:
    assert likeness(text, text) == pytest.approx(1.0)
    assert likeness(text, text) > likeness(text, f"{text} and more of it")
    assert likeness("", text) == likeness(text, "") == 0.0


def test_a_brief_text_is_three_sentences_and_no_more_than_so_many_letters() -> None:
    assert brief("One.  Two!\nThree? Four. Five.") == "One. Two! Three?"
    assert brief("a" * 900) == "a" * 500
    assert plain("  a\n\n b ", 10) == "a b"
    assert plain("a" * 20, 10) == "a" * 10
