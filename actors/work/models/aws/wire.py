"""What Converse answers, as structs."""

from __future__ import annotations

from typing import Any

import msgspec

from .....protocol import chat
from .....protocol.decoding import json_decoder

Json = Any


class _Camel(msgspec.Struct, rename="camel"):
    """Named as Bedrock does."""


class Use(_Camel):
    tool_use_id: str = ""
    name: str = ""
    input: Json = None


class Reasoning(_Camel):
    text: str = ""
    signature: str = ""
    redacted_content: str = ""


class ReasoningBlock(_Camel):
    reasoning_text: Reasoning | None = None
    redacted_content: str = ""


class Block(_Camel):
    text: str = ""
    tool_use: Use | None = None
    reasoning_content: ReasoningBlock | None = None


class Message(_Camel):
    content: list[Block] = []


class Output(_Camel):
    message: Message | None = None


class Written(_Camel):
    ttl: str = ""
    input_tokens: int | None = None


class Usage(_Camel):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    cache_details: list[Written] | None = None


class Answer(_Camel):
    output: Output | None = None
    stop_reason: str = ""
    usage: Usage | None = None


class Start(_Camel):
    tool_use: Use | None = None


class Arguments(_Camel):
    input: str = ""


class Delta(_Camel):
    text: str = ""
    tool_use: Arguments | None = None
    reasoning_content: Reasoning | None = None


class Event(_Camel):
    """Any event of a stream."""

    content_block_index: int = 0
    start: Start | None = None
    delta: Delta | None = None
    stop_reason: str = ""
    usage: Usage | None = None


class Failure(msgspec.Struct):
    message: str = ""


decode_answer = json_decoder(Answer).decode
decode_event = json_decoder(Event).decode
decode_failure = json_decoder(Failure).decode


def usage_of(usage: Usage | None) -> chat.TokenUsage:
    """Cached tokens are counted apart from `inputTokens` here; ours are part of them."""
    if usage is None:
        return chat.TokenUsage()
    details = usage.cache_details or ()
    cached, written = usage.cache_read_input_tokens or 0, usage.cache_write_input_tokens or 0
    return chat.TokenUsage(
        input_tokens=(usage.input_tokens or 0) + cached + written,
        output_tokens=usage.output_tokens or 0,
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=sum(each.input_tokens or 0 for each in details if each.ttl == "1h"),
    )
