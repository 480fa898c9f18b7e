"""Codec of Anthropic's messages.

    POST {api_base}/messages

A response schema becomes a tool that must be called, since that works with every Claude model; the tool's input is the
text of the reply. This is not possible with other tools in the request, or with reasoning; then only the prompt
contains the schema. Reasoning options: see `reasoning.plan`. Reasoning blocks are sent back unchanged.

Prompt caching: the provider caches the request up to marked blocks, at most four. The codec marks the end of the
constant part (tools and system prompt), the end of the conversation, and the end of the previous request. The last is
needed because the provider searches only 20 blocks back for a cached prefix. Writing the cache costs a quarter more
than uncached input, and reading it a tenth. So `auto` marks only requests that are likely to be continued.
https://docs.claude.com/en/docs/build-with-claude/prompt-caching
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from ....protocol import chat
from ....protocol.decoding import json_decoder
from ....protocol.errors import ModelError, UpstreamError
from ....protocol.settings.model import Cache
from . import reasoning, stored_reasoning
from .codec import (
    EARLIER,
    NOTHING,
    Outgoing,
    ReplyBuilder,
    StreamReader,
    arguments_text,
    base64_of,
    blocks,
    caches,
    declared,
    file_as_text,
    given,
    media_type_of,
    read,
    with_valid_ids,
)

Json = Any

VERSION = "2023-06-01"

MAX_TOKENS = 4096
"""Token limit of a reply if the request has none: this provider requires one."""

FORM = "anthropic"
"""Format name of stored reasoning: unchanged blocks of the types below."""

_THOUGHTS = ("thinking", "redacted_thinking")

ANSWER = "structured_answer"
"""Name of the tool that represents a response schema."""


class AnthropicCodec:
    """Codec for Anthropic and compatible servers."""

    streams_tools = True

    def __init__(self, *, cache: Cache = "auto") -> None:
        self._cache = cache

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers with the key and the version of the format."""
        return {"x-api-key": key, "anthropic-version": VERSION}

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> Outgoing:
        """Return the request in Anthropic's format."""
        tools, choice, thinks, unwrap = offer(request, model)
        messages = list(_messages(with_valid_ids(request.messages), request.model))
        declared = [_tool(tool) for tool in tools]
        system: Json = request.system if request.system.strip() else None
        if caches(self._cache, request):
            mark = {"type": "ephemeral", "ttl": "1h"} if self._cache == "1h" else {"type": "ephemeral"}
            if system:
                system = [{"type": "text", "text": system, "cache_control": mark}]
            elif declared:
                declared[-1]["cache_control"] = mark
            # The last message, and the last user message of the previous request, which is two messages before it.
            for message in messages[-1:-4:-2]:
                _mark_end(message, mark)
        body = given(
            # Reasoning counts as output here, so a limit that the request did not set must leave room for it.
            max_tokens=request.max_tokens or MAX_TOKENS + thinks.room,
            messages=messages,
            system=system,
            tools=declared or None,
            tool_choice=_choice(choice) if tools else None,
            temperature=request.temperature if thinks.samples else None,
            top_p=request.top_p if thinks.samples else None,
            thinking=thinks.thinking,
            output_config=thinks.effort and {"effort": thinks.effort},
            stop_sequences=request.stop or None,
            stream=stream or None,
        )
        return Outgoing(
            "/messages",
            # `extra` first: it may add fields, but not replace a field of the request.
            msgspec.json.encode({**request.extra, **self.addressed(model), **body}),
            partial(_decoded, unwrap=unwrap),
            partial(AnthropicReader, unwrap=unwrap),
        )

    def addressed(self, model: str) -> Mapping[str, Json]:
        """Return the fields of the body that select the model. Vertex AI overrides this."""
        return {"model": model}


class AnthropicReader(StreamReader):
    """Reader of one streamed message. If `unwrap`, the arguments of the schema tool are the text of the reply."""

    form = FORM

    def __init__(self, *, unwrap: bool) -> None:
        super().__init__()
        self._unwrap = unwrap
        self._usage = _Usage()
        self._thinking: dict[str, Json] = {}
        self._thought: list[str] = []
        self._foreign: set[int] = set()  # indices of blocks whose JSON is input of the provider's own tools

    def take(self, data: str) -> Iterator[chat.Delta]:
        """Yield the deltas of one event."""
        for delta in self._event(read(_decode_event, data)):
            if self._unwrap and isinstance(delta, chat.ToolCallDelta):
                yield chat.TextDelta(delta.arguments)  # the only tool's arguments are the reply's text
            else:
                yield delta

    def finish(self) -> chat.ChatReply:
        """Return the reply. Raises UpstreamError before `message_stop`."""
        self.builder.usage = _usage(self._usage)
        reply = super().finish()
        return unwrapped(reply) if self._unwrap else reply

    def _event(self, event: _Event) -> Iterator[chat.Delta]:
        match event.type:
            case "message_start":
                self.builder.id = None if event.message is None else event.message.id
                self._count(event.message.usage if event.message else None)
            case "content_block_start" if event.content_block is not None:
                self._thinking = _thinking_block(self.builder, event.content_block)
                self._thought = [event.content_block.thinking]
                (self._foreign.discard if event.content_block.type == "tool_use" else self._foreign.add)(event.index)
                yield from _begun(self.builder, event.index, event.content_block)
            case "content_block_stop" if "thinking" in self._thinking:
                self._thinking["thinking"] = "".join(self._thought)
                self._thinking = {}
            case "content_block_delta":
                yield from self._more(event.index, event.delta)
            case "message_delta":
                self.builder.ends(event.delta.stop_reason)
                self._count(event.usage)
            case "message_stop":
                self.ended = True
            case "error":
                error = event.error or _Error()
                raise UpstreamError(error.message)
            case _:  # `ping`, and kinds that the provider may add
                pass

    def _more(self, index: int, delta: _Delta) -> Iterator[chat.Delta]:
        yield from self.builder.text(delta.text)
        if delta.thinking:
            self._thought.append(delta.thinking)
            yield from self.builder.reasoning(delta.thinking)
        if delta.signature and "signature" in self._thinking:
            self._thinking["signature"] += delta.signature
        if delta.partial_json and index not in self._foreign:
            yield from self.builder.fragment(index, arguments=delta.partial_json)

    def _count(self, usage: _Usage | None) -> None:
        """Merge token counts: the provider sends them twice, the second time with fewer fields."""
        if usage is not None:
            for name in _Usage.__struct_fields__:
                value = getattr(usage, name)
                if value is not None:
                    setattr(self._usage, name, value)


def offer(request: chat.ChatRequest, model: str) -> tuple[tuple[chat.Tool, ...], str, reasoning.ThinkingPlan, bool]:
    """Return the declared tools, the tool choice, the reasoning plan, and whether a tool represents the schema.

    A schema becomes a tool that must be called. Reasoning excludes a forced call; then only the prompt contains the
    schema. If the request forces a tool and the model does not allow that, only this tool is declared.
    """
    tools, choice, schema = request.tools, request.tool_choice, request.response_schema
    thinks = reasoning.plan(request, model, forced=bool(tools) and choice not in ("auto", "none"))
    unwrap = schema is not None and not tools and schema.get("type") == "object"
    if unwrap:
        asked = request.reasoning_effort is not None or bool(request.thinking_budget)
        thinks = thinks if thinks.on and asked else reasoning.plan(request, model, forced=True)
        unwrap = not thinks.on
    if unwrap:
        return (
            (chat.Tool(name=ANSWER, description="Give the answer.", parameters=schema or {}),),
            ANSWER,
            thinks,
            True,
        )
    if not thinks.forces and choice not in ("auto", "none"):
        tools, choice = tuple(tool for tool in tools if tool.name == choice) or tools, "auto"
    return tools, choice, thinks, False


# --- out --------------------------------------------------------------------------------------------------


def _messages(turns: Sequence[chat.Turn], model: str) -> Iterator[Json]:
    """Yield the turns as messages. Roles alternate and the user begins, as this provider requires.

    All turns between two replies are merged into one message, with the tool results in their order.
    """
    if turns and isinstance(turns[0], chat.AssistantTurn):
        yield {"role": "user", "content": EARLIER}
    said: list[Json] = []
    for turn in turns:
        if isinstance(turn, chat.AssistantTurn):
            if said:
                yield {"role": "user", "content": _joined(said)}
                said = []
            content = list(_blocks(turn, model)) or [{"type": "text", "text": NOTHING}]
            yield {"role": "assistant", "content": content}
        elif isinstance(turn, chat.ToolTurn):
            said.append([_result(turn)])
        else:
            said.append(blocks(turn.content, _part) or NOTHING)
    if said:
        yield {"role": "user", "content": _joined(said)}


def _joined(contents: list[Json]) -> Json:
    if len(contents) == 1:
        return contents[0]
    as_blocks = ([{"type": "text", "text": each}] if isinstance(each, str) else each for each in contents)
    return [block for each in as_blocks for block in each]


def _mark_end(message: Json, mark: Json) -> None:
    """Mark the end of a message, so that the provider caches everything up to it."""
    content = message["content"]
    if isinstance(content, str):
        message["content"] = content = [{"type": "text", "text": content}]
    if content and content[-1]["type"] not in _THOUGHTS:  # the provider refuses marked reasoning blocks
        content[-1] = {**content[-1], "cache_control": mark}


def _blocks(turn: chat.AssistantTurn, model: str) -> Iterator[Json]:
    for piece in stored_reasoning.sent(turn, model, FORM):
        if isinstance(piece, str):
            yield {"type": "text", "text": piece}
        elif isinstance(piece, chat.ToolCall):
            given_to = {"malformed": piece.malformed} if piece.malformed else piece.arguments
            yield {"type": "tool_use", "id": piece.id, "name": piece.name, "input": given_to}
        elif piece[0].get("type") in _THOUGHTS and (piece[0].get("signature") or piece[0].get("data")):
            yield piece[0]


def _result(turn: chat.ToolTurn) -> Json:
    result = {"type": "tool_result", "tool_use_id": turn.call, "content": blocks(turn.content, _part)}
    return {**result, "is_error": True} if turn.error else result


def _part(part: chat.TextPart | chat.ImagePart | chat.FilePart) -> Json:
    match part:
        case chat.TextPart():
            return {"type": "text", "text": part.text}
        case chat.ImagePart() if part.url and not part.url.startswith("data:"):
            return {"type": "image", "source": {"type": "url", "url": part.url}}
        case chat.ImagePart():
            return {"type": "image", "source": _source(part)}
        case chat.FilePart(media_type="application/pdf"):
            return {"type": "document", "title": part.name, "source": _source(part)}
        case chat.FilePart():
            return {"type": "text", "text": file_as_text(part)}


def _source(part: chat.ImagePart | chat.FilePart) -> Json:
    if isinstance(part, chat.ImagePart) and part.url:
        media_type, _, data = part.url.removeprefix("data:").partition(";base64,")
        return {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "base64", "media_type": media_type_of(part), "data": base64_of(part)}


def _tool(tool: chat.Tool) -> Json:
    return {"name": tool.name, "description": tool.description, "input_schema": declared(tool.parameters)}


def _choice(choice: str) -> Json:
    match choice:
        case "auto":
            return None
        case "none":
            return {"type": "none"}
        case "required":
            return {"type": "any"}
        case name:
            return {"type": "tool", "name": name}


# --- in ---------------------------------------------------------------------------------------------------


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: Json = {}


class _Delta(msgspec.Struct):
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Written(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _Written | None = None
    output_tokens_details: _OutputDetails | None = None


class _Error(msgspec.Struct):
    type: str = "error"
    message: str = "the provider reported an error without a message"


class _Message(msgspec.Struct):
    id: Json = None
    content: list[_Block] = []
    stop_reason: str | None = None
    usage: _Usage | None = None
    error: _Error | None = None


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta = msgspec.field(default_factory=_Delta)
    usage: _Usage | None = None
    error: _Error | None = None


_decode_message = json_decoder(_Message).decode
_decode_event = json_decoder(_Event).decode


def _decoded(body: bytes, *, unwrap: bool) -> chat.ChatReply:
    message = read(_decode_message, body)
    if message.error is not None:
        raise ModelError(message.error.message)
    builder = ReplyBuilder(FORM)
    for index, block in enumerate(message.content):
        _thinking_block(builder, block)
        list(_begun(builder, index, block))
        if block.input:
            list(builder.fragment(index, arguments=arguments_text(block.input)))
    builder.ends(message.stop_reason)
    builder.usage = _usage(message.usage)
    builder.id = message.id
    reply = builder.build()
    return unwrapped(reply) if unwrap else reply


def _thinking_block(builder: ReplyBuilder, block: _Block) -> dict[str, Json]:
    """Store a reasoning block in the reply and return it, or {} for any other block. A stream fills it later."""
    if block.type == "thinking":
        found: dict[str, Json] = {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
    elif block.type == "redacted_thinking":
        found = {"type": "redacted_thinking", "data": block.data}
    else:
        return {}
    builder.thought(found)
    return found


def _begun(builder: ReplyBuilder, index: int, block: _Block) -> Iterator[chat.Delta]:
    """Yield the deltas of a block's start; a stream sends the rest later. Unknown types yield nothing."""
    if block.type == "tool_use":
        yield from builder.fragment(index, id=block.id, name=block.name)
    elif block.type == "text":
        yield from builder.text(block.text)
    elif block.type == "thinking":
        yield from builder.reasoning(block.thinking)


def _usage(usage: _Usage | None) -> chat.TokenUsage:
    """Convert token counts: `input_tokens` excludes cached tokens here, and includes them in `TokenUsage`."""
    if usage is None:
        return chat.TokenUsage()
    cached, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return chat.TokenUsage(
        input_tokens=(usage.input_tokens or 0) + cached + written,
        output_tokens=usage.output_tokens or 0,
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=(usage.cache_creation.ephemeral_1h_input_tokens or 0) if usage.cache_creation else 0,
        reasoning_tokens=(usage.output_tokens_details.thinking_tokens or 0) if usage.output_tokens_details else 0,
    )


def unwrapped(reply: chat.ChatReply) -> chat.ChatReply:
    """Return the reply with the arguments of the schema tool as its text, if that was the only call."""
    answers = [call for call in reply.tool_calls if call.name == ANSWER]
    if not answers or len(reply.tool_calls) != 1:
        return reply
    text = answers[0].malformed or msgspec.json.encode(answers[0].arguments).decode()
    stop: chat.StopReason = "end" if reply.stop == "tools" else reply.stop
    return msgspec.structs.replace(reply, text=text, tool_calls=(), stop=stop)
