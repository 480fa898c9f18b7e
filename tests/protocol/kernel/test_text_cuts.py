"""Cuts of texts: no part of a word is left at one."""

from __future__ import annotations

import random
import string

from callboard.protocol.kernel.text_cuts import LONGEST_WORD, after_cut, before_cut, head_of, tail_of

LETTERS = string.ascii_letters + string.digits + "-_=+/.&;%:@#~!"


def test_no_word_is_cut_through_wherever_the_cut_is() -> None:
    chance = random.Random(3)
    words = ["".join(chance.choices(LETTERS, k=chance.randint(1, 60))) for _ in range(40)]
    text = "".join(word + chance.choice([" ", "\n", '"', "<", "é"]) for word in words)
    for most in range(len(text) + 1):
        for found in (head_of(text, most), tail_of(text, most)):
            assert len(found) <= most
            assert found in text
            left = "".join(char if char in LETTERS else " " for char in found).split()
            assert set(left) <= set(words)


def test_short_texts_and_endless_words_stay() -> None:
    assert head_of("one word", 100) == tail_of("one word", 100) == "one word"
    assert head_of("x" * 500, 200) == tail_of("x" * 500, 200) == ""
    data = "x" * (LONGEST_WORD + 1)
    assert before_cut(data) == after_cut(data) == data
    assert before_cut("日本語") == after_cut("日本語") == "日本語"
