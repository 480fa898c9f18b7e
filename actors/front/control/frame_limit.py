"""Frame limit: shortens a frame until it fits into the client's maximum frame size.

Many websocket libraries close a connection with 1009 when a frame exceeds 1 MiB. A client that reconnects and resumes
would get the same frame again, forever. So the server shortens long frames and marks them. `_meta.cut` of the params or
the result maps the JSON pointer of each shortened value to its original length: characters of a text, or items of a
list. `_result/part` returns the complete result in parts.

Texts and lists are shortened together, in steps, until the frame fits. So a frame with many medium texts keeps a piece
of each. Model output does not get this long, because it is split where it is emitted (`split_text`).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ....protocol.control.bounds import MOST_CUT

Json: TypeAlias = Any

MAX_FRAME = 1024 * 1024
"""Default limit of a frame in bytes: the default of common websocket libraries."""

SMALLEST, LARGEST = 64 * 1024, 100 * 1024 * 1024
"""Bounds of the limit that a client may set."""

_FRAME_HEAD = 2048
"""Bytes reserved for the rest of a frame."""

_STEPS = ((100_000, 10_000), (20_000, 1_000), (4_000, 300), (1_000, 100), (200, 30), (40, 5))
"""Maximum characters of each text, and items of each list or object, per step."""


def shortened(value: Json, most: int) -> dict[str, Json]:
    """Return `value` as an object with `_meta.cut`, short enough for a frame of `most` bytes.

    Args:
        value: params or a result, as JSON values.
    """
    for text, items in _STEPS:
        cut: dict[str, int] = {}
        short = _cut(value, text, items, "", cut)
        if isinstance(short, dict):
            marked: dict[str, Json] = {**short, "_meta": {"cut": dict(list(cut.items())[:MOST_CUT])}}
            if len(msgspec.json.encode(marked)) <= most - _FRAME_HEAD:
                return marked
    return {"_meta": {"cut": {"": len(value)}}}


def _cut(value: Json, text: int, items: int, where: str, cut: dict[str, int]) -> Json:
    if isinstance(value, str):
        if len(value) <= text:
            return value
        cut[where] = len(value)
        return value[:text]
    if isinstance(value, list):
        if len(value) > items:
            cut[where] = len(value)
        return [_cut(each, text, items, f"{where}/{number}", cut) for number, each in enumerate(value[:items])]
    if isinstance(value, dict):
        if len(value) > items:
            cut[where] = len(value)
        return {
            key: _cut(each, text, items, f"{where}/{key.replace('~', '~0').replace('/', '~1')}", cut)
            for key, each in list(value.items())[:items]
        }
    return value
