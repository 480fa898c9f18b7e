"""How many columns of a terminal characters take, and where a text may be cut.

Terminals differ about emoji. Where they do, the wider answer is taken: a line that is narrower than thought does no
harm, one that is wider would be broken by the terminal. A cut never parts a character from what is drawn over it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache

_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_SKINS = range(0x1F3FB, 0x1F400)
_HANGUL_FOLLOWING = range(0x1160, 0x1200)


def width(text: str) -> int:
    """The columns that a text without control characters takes."""
    if text.isascii():
        return len(text)
    taken = sum(map(char_width, text))
    if _EMOJI_STYLE in text:
        taken += sum(char_width(text[at - 1]) == 1 for at, char in enumerate(text) if at and char == _EMOJI_STYLE)
    return taken


@lru_cache(4096)
def char_width(char: str) -> int:
    """The columns of one character: 0 for what is drawn over the one before."""
    code = ord(char)
    if code in _SKINS or code in _HANGUL_FOLLOWING:
        return 0
    if unicodedata.category(char) in ("Mn", "Me", "Cf") and code != 0xAD:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clusters(text: str) -> Iterator[str]:
    """The text in pieces that stay together: a character and what is drawn over it or joined to it."""
    begin = 0
    for at in range(1, len(text)):
        char = text[at]
        if (char_width(char) and text[at - 1] != _JOINER) or char == "\t":
            yield text[begin:at]
            begin = at
    if text:
        yield text[begin:]


def fitting(text: str, room: int) -> int:
    """How many characters of the text fit into that many columns; at least one cluster, so that callers get on."""
    if text.isascii():
        return max(1, min(len(text), room))
    taken = end = 0
    for cluster in clusters(text):
        taken += width(cluster)
        if taken > room and end:
            return end
        end += len(cluster)
    return end
