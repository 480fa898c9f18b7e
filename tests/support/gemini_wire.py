"""Gemini's wire format for `fake_models`: a reply as one answer, or as the events of a stream.

The shapes are those of https://ai.google.dev/api/generate-content; calls of tools come whole, and have no ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.fake_models import Reply

Json = Any


def body_of(path: str, reply: Reply) -> Iterator[bytes]:
    """The answer's body in the pieces in which it is sent."""
    usage = {
        "promptTokenCount": reply.input_tokens,
        "candidatesTokenCount": reply.output_tokens,
        "totalTokenCount": reply.input_tokens + reply.output_tokens,
    }
    end = {"usageMetadata": usage, "modelVersion": "model"}
    if ":streamGenerateContent" not in path:
        whole = [part for text in (reply.reasoning,) if text for part in [{"text": text, "thought": True}]]
        whole += [{"text": reply.text}] if reply.text else []
        yield json.dumps({"candidates": [_candidate([*whole, *_calls(reply)], "STOP")], **end}).encode()
        return
    parts: list[Json] = [{"text": piece, "thought": True} for piece in _pieces(reply.reasoning, reply.piece)]
    parts += [{"text": piece} for piece in _pieces(reply.text, reply.piece)]
    parts += _calls(reply)
    for part in parts:
        yield _event({"candidates": [_candidate([part], None)]})
    yield _event({"candidates": [_candidate([], reply.stop or "STOP")], **end})


def _calls(reply: Reply) -> list[Json]:
    return [{"functionCall": {"name": name, "args": arguments}} for name, arguments in reply.calls]


def _candidate(parts: list[Json], stop: str | None) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {**candidate, "finishReason": stop} if stop else candidate


def _event(answer: Json) -> bytes:
    return b"data: " + json.dumps(answer).encode() + b"\r\n\r\n"


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
