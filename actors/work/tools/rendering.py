"""Renders values as bounded texts: for the model, for events, for people."""

from __future__ import annotations

from typing import Any

import msgspec

from ....protocol.chat import FilePart, ImagePart, TextPart
from .tool import Shown

_encoder = msgspec.json.Encoder()


def text_of(value: Any) -> str:
    """A value as the model reads it: a text as it is, anything else as JSON; what JSON lacks, by its `repr`.

    Of what is shown, images and files by their names.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Shown):
        return "\n".join(part.text if isinstance(part, TextPart) else f"[{_named(part)}]" for part in value.parts)
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(value)


def _named(part: ImagePart | FilePart) -> str:
    return f"file {part.name}" if isinstance(part, FilePart) else f"image, {part.media_type}, {len(part.data)} bytes"


def shortened(text: str, limit: int) -> str:
    """The text in about `limit` characters: beginning and end, and between them how much is left out."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[len(text) - tail :]}"
