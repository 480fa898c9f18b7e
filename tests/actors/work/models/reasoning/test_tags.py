"""Thinking in tags before an answer is no part of it, in whatever pieces it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.work.models.stored_reasoning import ThinkTagParser


def parted(*pieces: str) -> tuple[str, str]:
    parting = ThinkTagParser()
    found = [*(parting.take(piece) for piece in pieces), parting.rest()]
    return "".join(thought for thought, _ in found), "".join(answer for _, answer in found)


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>\nHm.\n</think>\n\n42", "\nHm.\n", "42"),
        (" \n<think>a < b</thin></think>42 </think>", "a < b</thin>", "42 </think>"),
        ("42 <think>no</think>", "", "42 <think>no</think>"),
        ("<thinking> is hard", "", "<thinking> is hard"),
        ("<think>never closed</th", "never closed</th", ""),
        ("<think></think>", "", ""),
        ("  <thi", "", "  <thi"),
        ("<think>", "", ""),
        ("  x", "", "  x"),
        ("", "", ""),
    ],
)
def test_what_is_thinking_and_what_is_the_answer(text: str, thought: str, answer: str) -> None:
    assert parted(text) == (thought, answer)
    assert parted(*text) == (thought, answer)


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "th", "ink>", "</", " ", "\n", "a"]), max_size=12), st.data()
)
def test_pieces_say_what_the_whole_says(words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert parted(*pieces) == parted(text)
