"""Splitting of JSON: as many adjacent items of lists and objects as fit into a chunk.

The keys on the path are the heading. Item numbers are not, because they change with every item inserted before. The
text is cut in its original form, not serialised again: a chunk shows the lines of the file. A sequence of values (JSON
Lines) is split like a list. Invalid JSON is split as prose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from .cutter import LEVELS, Cutter, TextPiece

_DEEPEST = 30
"""Levels of nesting below which everything is split as prose."""

_SPACE = re.compile(r"\s*")
_COMMA = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
_DECODER = json.JSONDecoder(strict=False)


def pieces(cutter: Cutter) -> Iterator[TextPiece]:
    """Yield the chunks of a JSON text."""
    try:
        values = list(_values(cutter.text))
        if len(values) == 1:
            found = _split(TextPiece(0, len(cutter.text)), values[0].start, cutter, 0)
        else:
            found = cutter.packed((part for value in values for part in _split(value, value.start, cutter, 0)), ())
        yield from list(found)
    except (ValueError, RecursionError):  # invalid JSON, or endless nesting
        yield from cutter.cut(TextPiece(0, len(cutter.text)), LEVELS)


def _split(piece: TextPiece, begins: int, cutter: Cutter, depth: int) -> Iterator[TextPiece]:
    if cutter.fits(piece.start, piece.end):
        yield piece
    elif cutter.text[begins : begins + 1] not in ("[", "{") or depth == _DEEPEST:
        yield from cutter.cut(piece, LEVELS)
    else:
        yield from cutter.packed(_parts(piece, begins, cutter, depth), piece.heading)


def _parts(piece: TextPiece, begins: int, cutter: Cutter, depth: int) -> Iterator[TextPiece]:
    """Yield the items of a list or an object; the brackets belong to the first and the last item."""
    items = list(_items(cutter.text, begins))
    if not items:
        yield from cutter.cut(piece, LEVELS)
    for number, (key, start, value) in enumerate(items):
        first, last = number == 0, number + 1 == len(items)
        end = piece.end if last else items[number + 1][1]
        part = TextPiece(piece.start if first else start, end, (*piece.heading, *key))
        yield from _split(part, value, cutter, depth + 1)


def _items(text: str, begins: int) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield the key of each item, if it has one, the start of the item, and the start of its value."""
    in_object = text[begins] == "{"
    closing = "}" if in_object else "]"
    position = _after(_SPACE, text, begins + 1)
    while text[position] != closing:
        start = position
        key: tuple[str, ...] = ()
        if in_object:
            name, position = _DECODER.raw_decode(text, position)
            position = _after(_COLON, text, position)
            key = (name,)
        yield key, start, position
        _value, position = _DECODER.raw_decode(text, position)
        position = _after(_COMMA, text, position)


def _values(text: str) -> Iterator[TextPiece]:
    start = _after(_SPACE, text, 0)
    while start < len(text):
        _value, end = _DECODER.raw_decode(text, start)
        following = _after(_SPACE, text, end)
        yield TextPiece(start, following)
        start = following


def _after(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    assert match is not None, "it matches nothing, too"
    return match.end()
