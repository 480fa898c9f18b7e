"""Similarity of two texts by words and letters, and shortening of texts for memories.

    .4 of the words in both texts, of all words        .3 of the longest common subsequence of letters
    .2 of the question's words in the text             .1 of the ratio of lengths

The weights are DevAll's. The subsequence is computed with integers as sets of positions (Hyyrö). So the time is
proportional to the length of one text, not to the product of both.
"""

from __future__ import annotations

import re

LONGEST = 500
"""Most characters of a text that are compared."""

_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+")


def likeness(question: str, text: str) -> float:
    """Return the similarity, from 0 to 1."""
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
    """Return the length of the longest common subsequence."""
    places: dict[str, int] = {}
    for i, letter in enumerate(a):
        places[letter] = places.get(letter, 0) | 1 << i
    whole = (1 << len(a)) - 1
    left = whole
    for letter in b:
        hits = left & places.get(letter, 0)
        # One column of the bit-parallel algorithm: the carry of the addition moves through runs of set bits.
        left = (left + hits | left - hits) & whole
    return len(a) - left.bit_count()


def plain(text: str, longest: int) -> str:
    """Return a text on one line, cut at `longest` characters."""
    return " ".join(text[: 4 * longest].split())[:longest]


def brief(text: str, longest: int = LONGEST, sentences: int = 3) -> str:
    """Return the first sentences of a text, cut at `longest` characters."""
    return " ".join(_SENTENCE.split(" ".join(text[: 4 * longest].split()))[:sentences])[:longest]
