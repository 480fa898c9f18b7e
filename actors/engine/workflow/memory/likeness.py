"""Scores how alike two texts are by words and letters, and shortens texts for memories.

    .4 of the words that both have, of all words       .3 of the longest subsequence of letters that both have
    .2 of the question's words that the text has       .1 of their lengths

DevAll's weights. The subsequence is found with whole numbers as sets of positions (Hyyrö), so that it takes time like
one text's length, not like the product of both.
"""

from __future__ import annotations

import re

LONGEST = 500
"""Characters of a text that are compared."""

_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+")


def likeness(question: str, text: str) -> float:
    """From 0 to 1."""
    asked, told = question[:LONGEST].lower(), text[:LONGEST].lower()
    if not asked or not told:
        return 0.0
    wanted, there = set(_WORD.findall(asked)), set(_WORD.findall(told))
    both = len(wanted & there)
    words = both / len(wanted | there) if wanted or there else 0.0
    letters = common(asked, told) / max(len(asked), len(told))
    covered = both / len(wanted) if wanted else 0.0
    lengths = min(len(asked), len(told)) / max(len(asked), len(told))
    return 0.4 * words + 0.3 * letters + 0.2 * covered + 0.1 * lengths


def common(a: str, b: str) -> int:
    """The length of the longest common subsequence."""
    places: dict[str, int] = {}
    for i, letter in enumerate(a):
        places[letter] = places.get(letter, 0) | 1 << i
    whole = (1 << len(a)) - 1
    left = whole
    for letter in b:
        hits = left & places.get(letter, 0)
        left = (left + hits | left - hits) & whole
    return len(a) - left.bit_count()


def plain(text: str, longest: int) -> str:
    """A text on one line, cut off where it gets too long."""
    return " ".join(text[: 4 * longest].split())[:longest]


def brief(text: str, longest: int = LONGEST, sentences: int = 3) -> str:
    """The first sentences of a text, and no more than so many characters."""
    return " ".join(_SENTENCE.split(" ".join(text[: 4 * longest].split()))[:sentences])[:longest]
