"""Splitting of messages over dynamic edges into the units that their target runs for.

A message that cannot be split is one unit. If splitting yields no unit at all, each message is one unit. Only an
empty JSON array and a text without lines mean that there is no work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

from .....protocol.json_values import NotJson, decode
from .....protocol.workflow.model import ByArray, ByDelimiter, ByLines, ByMatch, ByMessage, ByPath, Split
from ...graph.templates import render
from ..messages import Message
from .matching import Pattern, pattern_in
from .processors import with_text


async def units_of(split: Split, messages: Sequence[Message]) -> list[Message]:
    """Return the units as messages, in the order of the messages and of their texts."""
    match split:
        case ByMessage():
            return list(messages)
        case ByArray():
            return _pieces(messages, _array)
        case ByLines():
            return _pieces(messages, lambda text: [line.strip() for line in text.splitlines() if line.strip()])
        case ByDelimiter(pattern=pattern):
            between = Pattern(pattern)
            cut = [_between(message.text, await between.spans(message.text)) for message in messages]
            return _joined(messages, cut) or list(messages)
        case ByPath(json_path=path):
            return _pieces(messages, lambda text: _at_path(text, path)) or list(messages)
        case ByMatch():
            matching, group = pattern_in(split), split.group or 0
            # An unknown group means the whole match.
            if group not in matching.names if isinstance(group, str) else group > matching.groups:
                group = 0
            none = [""] if split.on_no_match == "empty" else None
            found = [await matching.each(message.text, group) for message in messages]
            return _joined(messages, [[each or "" for each in one] or none for one in found]) or list(messages)


def _pieces(messages: Sequence[Message], cut: Callable[[str], list[str] | None]) -> list[Message]:
    return _joined(messages, [cut(message.text) for message in messages])


def _joined(messages: Sequence[Message], cut: Iterable[list[str] | None]) -> list[Message]:
    units: list[Message] = []
    for message, pieces in zip(messages, cut, strict=True):
        if pieces is None:
            units.append(message)
        else:
            units.extend(with_text(message, piece) for piece in pieces)
    return units


_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)


def _array(text: str) -> list[str] | None:
    """Return the items of a JSON array, also if the array is in a fence; None if there is no array."""
    fence = _FENCED.search(text)
    for candidate in (text, fence[1] if fence else ""):
        try:
            items = decode(candidate)
        except NotJson:
            continue
        if isinstance(items, list):
            return [
                json.dumps(item, ensure_ascii=False)
                if isinstance(item, dict | list)
                else item
                if isinstance(item, str)
                else render(item)
                for item in items
            ]
    return None


def _between(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """Return the texts between the matches, without blank ones."""
    pieces: list[str] = []
    end = 0
    for start, after in spans:
        pieces.append(text[end:start])
        end = after
    return [piece.strip() for piece in (*pieces, text[end:]) if piece.strip()]


def _at_path(text: str, path: str) -> list[str] | None:
    """Return the items at a dotted path, where digits index lists. A path without a value yields an empty list."""
    try:
        value = decode(text)
    except NotJson:
        return None
    for part in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            value = None
        if value is None:
            return []
    items = value if isinstance(value, list) else [value]
    return [json.dumps(item, ensure_ascii=False) if isinstance(item, dict | list) else str(item) for item in items]
