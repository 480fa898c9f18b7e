"""Structs of Bedrock's Converse answers and stream events."""

from __future__ import annotations

from typing import Any

import msgspec

from .....protocol import chat
from .....protocol.decoding import json_decoder

Json = Any


class _Camel(msgspec.Struct, rename="camel"):
    """Base of structs with Bedrock's camel-case names."""


class Use(_Camel):
    tool_use_id: str = ""
    name: str = ""
    input: Json = None


class Reasoning(_Camel):
    text: str = ""
    signature: str = ""
    redacted_content: str = ""


# Complete answers nest the text of reasoning in `reasoningText`; stream deltas have it at the top level.
class ReasoningBlock(_Camel):
    reasoning_text: Reasoning | None = None
    redacted_content: str = ""


class BedrockBlock(_Camel):
    text: str = ""
    tool_use: Use | None = None
    reasoning_content: ReasoningBlock | None = None


class BedrockMessage(_Camel):
    content: list[BedrockBlock] = []


class BedrockOutput(_Camel):
    message: BedrockMessage | None = None


class BedrockCacheWrite(_Camel):
    ttl: str = ""
    input_tokens: int | None = None


class BedrockUsage(_Camel):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    cache_details: list[BedrockCacheWrite] | None = None


class BedrockReply(_Camel):
    output: BedrockOutput | None = None
    stop_reason: str = ""
    usage: BedrockUsage | None = None


class BedrockBlockStart(_Camel):
    tool_use: Use | None = None


# A stream sends the arguments as pieces of JSON text, a complete answer as an object (`Use.input`).
class Arguments(_Camel):
    input: str = ""


class Delta(_Camel):
    text: str = ""
    tool_use: Arguments | None = None
    reasoning_content: Reasoning | None = None


class BedrockEvent(_Camel):
    """Stream event of any kind; each kind has some of the fields."""

    content_block_index: int = 0
    start: BedrockBlockStart | None = None
    delta: Delta | None = None
    stop_reason: str = ""
    usage: BedrockUsage | None = None


class BedrockFailure(msgspec.Struct):
    message: str = ""


decode_answer = json_decoder(BedrockReply).decode
decode_event = json_decoder(BedrockEvent).decode
decode_failure = json_decoder(BedrockFailure).decode


def usage_of(usage: BedrockUsage | None) -> chat.TokenUsage:
    """Convert token counts: `inputTokens` excludes cached tokens, `TokenUsage.input_tokens` includes them."""
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
