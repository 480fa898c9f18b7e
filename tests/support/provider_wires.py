"""Every codec with the wire format of its provider: streams and whole answers that a test puts together by itself.

`WIRES` is the provider's side of the table of quirks (`test_wire_quirks.py`): a new codec gets a row here and inherits
all the tests. Codecs of Vertex AI and Azure are those of the models' makers, at other URLs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from callboard.actors.work.models.anthropic import AnthropicCodec
from callboard.actors.work.models.aws.bedrock import BedrockCodec
from callboard.actors.work.models.codec import Codec
from callboard.actors.work.models.cohere import CohereCodec
from callboard.actors.work.models.gemini import GeminiCodec
from callboard.actors.work.models.ollama import OllamaCodec
from callboard.actors.work.models.openai import OpenAiCodec
from callboard.actors.work.models.responses import ResponsesCodec
from callboard.protocol.chat import ChatReply, ChatRequest
from support.aws_messages import event
from support.codec_bench import HELLO

Json = Any


class Fragment(msgspec.Struct, frozen=True):
    """A fragment of a streamed call, with the keys that it has."""

    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True)
class Wire:
    """One provider's format.

    Attributes:
        fragments: the part of a stream with these fragments of calls; None where calls come whole.
        said: the part of a stream with a text.
        ended: the part of a stream that ends it for a reason, in the provider's own word.
        whole: a complete answer with a text, that ended for a reason.
        ordinary: the provider's word for an ordinary end.
        keyed: whether fragments after the first may have an id or a name.
    """

    codec: Codec
    said: Callable[[str], bytes]
    ended: Callable[[str], bytes]
    whole: Callable[[str, str], Json]
    ordinary: str
    fragments: Callable[[Sequence[Fragment]], bytes] | None = None
    keyed: bool = False

    def read(self, stream: bytes, request: ChatRequest = HELLO) -> ChatReply:
        """The reply in a streamed answer."""
        reader = self.codec.encode(request, "m", stream=True).reader()
        list(reader.feed(stream))
        return reader.finish()

    def decoded(self, answer: Json, request: ChatRequest = HELLO) -> ChatReply:
        """The reply in a whole answer."""
        return self.codec.encode(request, "m", stream=False).decode(json.dumps(answer).encode())

    def sent(self, request: ChatRequest) -> Json:
        """The body of a request."""
        return json.loads(self.codec.encode(request, "m", stream=False).body)


def sse(*frames: Json) -> bytes:
    """Server-sent events with these data."""
    return b"".join(b"data: " + json.dumps(frame).encode() + b"\n\n" for frame in frames)


# --- OpenAI's chat completions ----------------------------------------------------------------------------


def _chat(delta: Json, reason: str | None = None) -> bytes:
    return sse({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def _chat_fragments(fragments: Sequence[Fragment]) -> bytes:
    def call(fragment: Fragment) -> Json:
        function = {"name": fragment.name or None, "arguments": fragment.arguments}
        index = {} if fragment.index is None else {"index": fragment.index}
        return {**index, "id": fragment.id or None, "type": "function", "function": function}

    return b"".join(_chat({"tool_calls": [call(fragment)]}) for fragment in fragments)


def _chat_wire(own: bool) -> Wire:
    return Wire(
        OpenAiCodec(own=own),
        said=lambda text: _chat({"content": text}),
        ended=lambda reason: _chat({}, reason) + b"data: [DONE]\n\n",
        whole=lambda text, reason: {
            "choices": [{"index": 0, "message": {"content": text or None}, "finish_reason": reason}]
        },
        ordinary="stop",
        fragments=_chat_fragments,
        keyed=True,
    )


# --- OpenAI's responses -----------------------------------------------------------------------------------


def _response_fragments(fragments: Sequence[Fragment]) -> bytes:
    def frame(fragment: Fragment) -> Json:
        if fragment.id or fragment.name:
            item = {"type": "function_call", "call_id": fragment.id, "name": fragment.name}
            return {"type": "response.output_item.added", "output_index": fragment.index, "item": item}
        kind = "response.function_call_arguments.delta"
        return {"type": kind, "output_index": fragment.index, "delta": fragment.arguments}

    return sse(*map(frame, _parted(fragments)))


def _response(reason: str) -> Json:
    if reason == "completed":
        return {"status": "completed"}
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


_RESPONSES = Wire(
    ResponsesCodec(own=True),
    said=lambda text: sse({"type": "response.output_text.delta", "output_index": 0, "delta": text}),
    ended=lambda reason: sse({"type": "response.completed", "response": {**_response(reason), "output": []}}),
    whole=lambda text, reason: {
        **_response(reason),
        "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}] if text else [],
    },
    ordinary="completed",
    fragments=_response_fragments,
)


# --- Anthropic --------------------------------------------------------------------------------------------


def _parted(fragments: Sequence[Fragment]) -> list[Fragment]:
    """Fragments where a head has no arguments: those follow by themselves."""
    parted = []
    for fragment in fragments:
        if (fragment.id or fragment.name) and fragment.arguments:
            parted += [
                msgspec.structs.replace(fragment, arguments=""),
                Fragment(fragment.index, arguments=fragment.arguments),
            ]
        else:
            parted.append(fragment)
    return parted


def _claude_fragments(fragments: Sequence[Fragment]) -> bytes:
    def frame(fragment: Fragment) -> Json:
        if fragment.id or fragment.name:
            block = {"type": "tool_use", "id": fragment.id, "name": fragment.name, "input": {}}
            return {"type": "content_block_start", "index": fragment.index, "content_block": block}
        delta = {"type": "input_json_delta", "partial_json": fragment.arguments}
        return {"type": "content_block_delta", "index": fragment.index, "delta": delta}

    return sse(*map(frame, _parted(fragments)))


_CLAUDE = Wire(
    AnthropicCodec(),
    said=lambda text: sse({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
    ended=lambda reason: sse({"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}),
    whole=lambda text, reason: {"content": [{"type": "text", "text": text}] if text else [], "stop_reason": reason},
    ordinary="end_turn",
    fragments=_claude_fragments,
)


# --- Bedrock ----------------------------------------------------------------------------------------------


def _bedrock_fragments(fragments: Sequence[Fragment]) -> bytes:
    def frame(fragment: Fragment) -> bytes:
        if fragment.id or fragment.name:
            use = {"toolUse": {"toolUseId": fragment.id, "name": fragment.name}}
            return event("contentBlockStart", contentBlockIndex=fragment.index, start=use)
        delta = {"toolUse": {"input": fragment.arguments}}
        return event("contentBlockDelta", contentBlockIndex=fragment.index, delta=delta)

    return b"".join(map(frame, _parted(fragments)))


_BEDROCK = Wire(
    BedrockCodec(None),
    said=lambda text: event("contentBlockDelta", contentBlockIndex=0, delta={"text": text}),
    ended=lambda reason: event("messageStop", stopReason=reason),
    whole=lambda text, reason: {
        "output": {"message": {"role": "assistant", "content": [{"text": text}] if text else []}},
        "stopReason": reason,
    },
    ordinary="end_turn",
    fragments=_bedrock_fragments,
)


# --- Cohere -----------------------------------------------------------------------------------------------


def _cohere_fragments(fragments: Sequence[Fragment]) -> bytes:
    def frame(fragment: Fragment) -> Json:
        call = {"id": fragment.id, "function": {"name": fragment.name, "arguments": fragment.arguments}}
        kind = "tool-call-start" if fragment.id or fragment.name else "tool-call-delta"
        return {"type": kind, "index": fragment.index, "delta": {"message": {"tool_calls": call}}}

    return sse(*map(frame, fragments))


_COHERE = Wire(
    CohereCodec(),
    said=lambda text: sse({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": text}}}}),
    ended=lambda reason: sse({"type": "message-end", "delta": {"finish_reason": reason}}),
    whole=lambda text, reason: {
        "message": {"role": "assistant", "content": [{"type": "text", "text": text}] if text else []},
        "finish_reason": reason,
    },
    ordinary="COMPLETE",
    fragments=_cohere_fragments,
    keyed=True,
)


# --- Gemini, Ollama: calls come whole ---------------------------------------------------------------------


def _candidate(text: str, reason: str | None) -> Json:
    content = {"role": "model", "parts": [{"text": text}]} if text else {}
    return {"candidates": [{"index": 0, "content": content, "finishReason": reason}]}


_GEMINI = Wire(
    GeminiCodec(),
    said=lambda text: sse(_candidate(text, None)),
    ended=lambda reason: sse(_candidate("", reason)),
    whole=_candidate,
    ordinary="STOP",
)


def _line(text: str, reason: str = "") -> Json:
    done = {"done": True, "done_reason": reason} if reason else {"done": False}
    return {"message": {"role": "assistant", "content": text}, **done}


_OLLAMA = Wire(
    OllamaCodec(),
    said=lambda text: json.dumps(_line(text)).encode() + b"\n",
    ended=lambda reason: json.dumps(_line("", reason)).encode() + b"\n",
    whole=_line,
    ordinary="stop",
)

WIRES: dict[str, Wire] = {
    "openai": _chat_wire(own=True),
    "openai-compatible": _chat_wire(own=False),
    "responses": _RESPONSES,
    "claude": _CLAUDE,
    "bedrock": _BEDROCK,
    "cohere": _COHERE,
    "gemini": _GEMINI,
    "ollama": _OLLAMA,
}
