"""JSON: by the items of lists and objects, as many neighbours as fit; the keys on the way are the heading. Numbers of
items are not, as they change with every item that is put in before.

The text is cut where it stands, it is not written anew: what a chunk shows is what the file says, line by line. A
sequence of values (JSON Lines) is taken as a list. What is no JSON is split as prose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from .cutter import LEVELS, Cutter, Piece

_DEEPEST = 30
"""Levels of nesting below which everything is prose."""

_SPACE = re.compile(r"\s*")
_COMMA = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")
_DECODER = json.JSONDecoder(strict=False)


def pieces(cutter: Cutter) -> Iterator[Piece]:
    """The chunks of a JSON text."""
    try:
        values = list(_values(cutter.text))
        if len(values) == 1:
            found = _split(Piece(0, len(cutter.text)), values[0].start, cutter, 0)
        else:
            found = cutter.packed((part for value in values for part in _split(value, value.start, cutter, 0)), ())
        yield from list(found)
    except (ValueError, RecursionError):  # no JSON, or nested without end
        yield from cutter.cut(Piece(0, len(cutter.text)), LEVELS)


def _split(piece: Piece, begins: int, cutter: Cutter, depth: int) -> Iterator[Piece]:
    if cutter.fits(piece.start, piece.end):
        yield piece
    elif cutter.text[begins : begins + 1] not in ("[", "{") or depth == _DEEPEST:
        yield from cutter.cut(piece, LEVELS)
    else:
        yield from cutter.packed(_parts(piece, begins, cutter, depth), piece.heading)


def _parts(piece: Piece, begins: int, cutter: Cutter, depth: int) -> Iterator[Piece]:
    """The items of a list or an object; the brackets go with the first and the last of them."""
    items = list(_items(cutter.text, begins))
    if not items:
        yield from cutter.cut(piece, LEVELS)
    for number, (key, start, value) in enumerate(items):
        first, last = number == 0, number + 1 == len(items)
        end = piece.end if last else items[number + 1][1]
        part = Piece(piece.start if first else start, end, (*piece.heading, *key))
        yield from _split(part, value, cutter, depth + 1)


def _items(text: str, begins: int) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Of each item its key, if it has one, where it starts, and where its value does."""
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


def _values(text: str) -> Iterator[Piece]:
    start = _after(_SPACE, text, 0)
    while start < len(text):
        _value, end = _DECODER.raw_decode(text, start)
        following = _after(_SPACE, text, end)
        yield Piece(start, following)
        start = following


def _after(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    assert match is not None, "it matches nothing, too"
    return match.end()
