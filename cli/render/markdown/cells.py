"""Character widths in terminal columns, and safe positions to cut a text.

Terminals disagree about emoji. The wider result is used: a line that is narrower than computed does no harm, but the
terminal would break a wider one. A cut never separates a character from its combining marks.
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
    """Return the columns of a text without control characters."""
    if text.isascii():
        return len(text)
    taken = sum(map(char_width, text))
    if _EMOJI_STYLE in text:
        taken += sum(char_width(text[at - 1]) == 1 for at, char in enumerate(text) if at and char == _EMOJI_STYLE)
    return taken


@lru_cache(4096)
def char_width(char: str) -> int:
    """Return the columns of a character: 0 for a combining mark."""
    code = ord(char)
    if code in _SKINS or code in _HANGUL_FOLLOWING:
        return 0
    if unicodedata.category(char) in ("Mn", "Me", "Cf") and code != 0xAD:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clusters(text: str) -> Iterator[str]:
    """Yield the text in clusters that must not be cut: a character with its combining and joined ones."""
    begin = 0
    for at in range(1, len(text)):
        char = text[at]
        if (char_width(char) and text[at - 1] != _JOINER) or char == "\t":
            yield text[begin:at]
            begin = at
    if text:
        yield text[begin:]


def fitting(text: str, room: int) -> int:
    """Return how many characters fit into `room` columns: at least one cluster, so that callers always progress."""
    if text.isascii():
        return max(1, min(len(text), room))
    taken = end = 0
    for cluster in clusters(text):
        taken += width(cluster)
        if taken > room and end:
            return end
        end += len(cluster)
    return end
