"""Values as texts: for the model, for events, for people. Bounded, whatever a tool or a model comes up with."""

from __future__ import annotations

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()


def text_of(value: Any) -> str:
    """A value as the model reads it: a text as it is, anything else as JSON; what JSON lacks, by its `repr`."""
    if isinstance(value, str):
        return value
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(value)


def shortened(text: str, limit: int) -> str:
    """The text in about `limit` characters: beginning and end, and between them how much is left out."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[len(text) - tail :]}"
