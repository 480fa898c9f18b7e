"""Codec of Cohere's chat, version 2.

    POST {api_base}/chat

The text before tool calls is the `tool_plan` in this format. It becomes the text of the reply, and is sent back as the
plan. Reasoning models have no plan: their `content` contains reasoning blocks, which are sent back at their positions
before calls and answers. The provider does not accept a response schema together with tools; then only the prompt
contains the schema. Citations are omitted. Token counts are the billed ones, which are lower than the tokens that the
model reads.

Sources: https://docs.cohere.com/reference/chat, the types of github.com/cohere-ai/cohere-python, and for reasoning
notebooks/guides/reasoning of github.com/cohere-ai/cohere-developer-experience.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from ....protocol import chat
from ....protocol.decoding import json_decoder
from ....protocol.errors import ModelError, UpstreamError
from . import codec, reasoning, stored_reasoning
from .codec import function_of, with_valid_ids

Json = Any

FORM = "cohere"
"""Format name of stored reasoning: unchanged blocks of `content`."""


class CohereCodec:
    """Translator between provider-neutral chat requests and Cohere's format."""

    streams_tools = True

    def headers(self, key: str) -> dict[str, str]:
        """Return the bearer token header; empty without a key."""
        return codec.bearer(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request in Cohere's format."""
        messages: list[Json] = [{"role": "system", "content": request.system}] if request.system else []
        messages.extend(_messages(with_valid_ids(request.messages), request.model))
        tools, schema = _offered(request), request.response_schema
        can_enforce = not tools and schema is not None and schema.get("type") == "object"
        body = codec.given(
            model=model,
            messages=messages,
            tools=[function_of(tool) for tool in tools] or None,
            tool_choice=_CHOICES.get(request.tool_choice, "REQUIRED") if tools else None,
            response_format={"type": "json_object", "json_schema": schema} if can_enforce else None,
            temperature=request.temperature,
            p=request.top_p,
            max_tokens=request.max_tokens,
            stop_sequences=request.stop or None,
            thinking=_thinking(request),
        )
        body["stream"] = stream
        return codec.Outgoing("/chat", msgspec.json.encode({**request.extra, **body}), _decoded, CohereReader)


class CohereReader(codec.StreamReader):
    """Reader of one streamed reply, which ends with `message-end`."""

    form = FORM

    def __init__(self) -> None:
        super().__init__()
        self._block: dict[str, Json] | None = None
        self._thought: list[str] = []

    def take(self, data: str) -> Iterator[chat.Delta]:
        """Yield the deltas of one event. Citations and unknown events yield nothing."""
        if data == "[DONE]":
            return
        event = codec.read(_decode_event, data)
        delta = event.delta
        self.builder.id = self.builder.id or event.id  # only `message-start` has it
        match event.type:
            case "content-start" | "content-delta" | "tool-plan-delta":
                for piece in _pieces(delta.message):
                    self._thinks(piece.thinking)
                yield from _read_message(self.builder, delta.message)
            case "content-end":
                self._ends_block()
            case "tool-call-start" | "tool-call-delta":
                yield from self._call(event.index, delta.message)
            case "message-end":
                self.ended = True
                self._ends_block()
                self.builder.usage = _usage(delta.usage)
                if delta.error:
                    raise UpstreamError(delta.error)
                self.builder.ends(delta.finish_reason)

    def _thinks(self, text: str | None) -> None:
        if text:
            if self._block is None:
                self._block = _block("")
                self.builder.thought(self._block)
            self._thought.append(text)

    def _ends_block(self) -> None:
        if self._block is not None:
            self._block["thinking"] = "".join(self._thought)
            self._block, self._thought = None, []

    def _call(self, index: int, message: _Message) -> Iterator[chat.Delta]:
        for call in message.tool_calls if isinstance(message.tool_calls, list) else [message.tool_calls]:
            yield from _called(self.builder, index, call)


# --- out --------------------------------------------------------------------------------------------------

_CHOICES = {"auto": None, "none": "NONE"}
"""Cohere's values by the request's `tool_choice`; any other value means that a tool must be called."""


def _thinking(request: chat.ChatRequest) -> Json:
    """Return the `thinking` option: a token budget, since Cohere has no levels. None keeps the model's default."""
    tokens = reasoning.budget_of(request)
    if tokens is None:
        return None
    # A budget of 0 means that reasoning is off.
    return {"type": "enabled", "token_budget": tokens} if tokens else {"type": "disabled"}


def _offered(request: chat.ChatRequest) -> Sequence[chat.Tool]:
    """Return the tools, or only the tool that must be called: the format cannot name a required tool."""
    named = [tool for tool in request.tools if tool.name == request.tool_choice]
    return named or request.tools


def _messages(turns: Sequence[chat.Turn], model: str) -> Iterator[Json]:
    """Yield the turns as messages.

    Tool results are text in this format. Their images and files follow the last result in a message of the user.
    """
    for are_results, together in groupby(turns, lambda turn: isinstance(turn, chat.ToolTurn)):
        images: list[Json] = []
        for turn in together:
            yield _message(turn, model)
            if are_results and isinstance(turn, chat.ToolTurn) and (apart := codec.result_apart(turn)[1]):
                images += [{"type": "text", "text": f"What {turn.name} shows:"}, *map(_part, apart)]
        if images:
            yield {"role": "user", "content": images}


def _message(turn: chat.Turn, model: str) -> Json:
    match turn:
        case chat.UserTurn():
            return {"role": "user", "content": codec.blocks(turn.content, _part) or codec.NOTHING}
        case chat.AssistantTurn():
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": codec.arguments_sent(call)},
                }
                for call in turn.tool_calls
            ] or None
            # Reasoning models have no `tool_plan`: their text is a block after the reasoning.
            if stored_reasoning.blocks(turn, model, FORM):
                return codec.given(role="assistant", content=list(_thoughtful(turn, model)), tool_calls=calls)
            text = turn.text if turn.text.strip() else ""
            if calls is None:
                return {"role": "assistant", "content": text or codec.NOTHING}
            return codec.given(role="assistant", tool_plan=text or None, tool_calls=calls)
        case chat.ToolTurn():
            text = codec.result_apart(turn)[0] or codec.NOTHING
            return {"role": "tool", "tool_call_id": turn.call, "content": text}


def _thoughtful(turn: chat.AssistantTurn, model: str) -> Iterator[Json]:
    """Yield the reasoning and text of a turn as blocks in their original order."""
    for piece in stored_reasoning.sent(turn, model, FORM):
        if isinstance(piece, str):
            yield {"type": "text", "text": piece}
        elif not isinstance(piece, chat.ToolCall):
            yield piece[0]
    if not turn.text.strip() and not turn.tool_calls:
        yield {"type": "text", "text": codec.NOTHING}


def _part(part: chat.TextPart | chat.ImagePart | chat.FilePart) -> Json:
    match part:
        case chat.TextPart():
            return {"type": "text", "text": part.text}
        case chat.ImagePart():
            return {"type": "image_url", "image_url": {"url": part.url or codec.data_url(part)}}
        case chat.FilePart():
            return {"type": "text", "text": codec.file_as_text(part)}


# --- in ---------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Json = None


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Piece(msgspec.Struct):
    text: str | None = None
    thinking: str | None = None


class _Message(msgspec.Struct):
    """Message of a complete reply, with lists, or a piece of a streamed one, with single items."""

    content: list[_Piece] | _Piece | None = None
    tool_plan: str | None = None
    tool_calls: list[_Call] | _Call | None = None


class _Tokens(msgspec.Struct):
    input_tokens: float | None = None
    output_tokens: float | None = None


class _Usage(msgspec.Struct):
    billed_units: _Tokens | None = None
    tokens: _Tokens | None = None
    cached_tokens: float | None = None


class _Delta(msgspec.Struct):
    message: _Message = msgspec.field(default_factory=_Message)
    finish_reason: str | None = None
    usage: _Usage | None = None
    error: str | None = None


class _Event(msgspec.Struct):
    id: Json = None
    type: str = ""
    index: int = 0
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Reply(msgspec.Struct):
    id: Json = None
    message: _Message | str | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None


_decode_reply = json_decoder(_Reply).decode
_decode_event = json_decoder(_Event).decode


def _decoded(body: bytes) -> chat.ChatReply:
    reply = codec.read(_decode_reply, body)
    if not isinstance(reply.message, _Message):
        raise ModelError(reply.message or "the provider's response has no message")
    builder = codec.ReplyBuilder(FORM)
    list(_read_message(builder, reply.message, keep=True))
    calls = reply.message.tool_calls
    for number, call in enumerate(calls if isinstance(calls, list) else [calls]):
        list(_called(builder, number, call))
    builder.ends(reply.finish_reason)
    builder.usage = _usage(reply.usage)
    builder.id = reply.id
    return builder.build()


def _read_message(builder: codec.ReplyBuilder, message: _Message, *, keep: bool = False) -> Iterator[chat.Delta]:
    yield from builder.text(message.tool_plan or "")
    for piece in _pieces(message):
        if piece.thinking and keep:
            builder.thought(_block(piece.thinking))
        yield from builder.reasoning(piece.thinking or "")
        yield from builder.text(piece.text or "")


def _pieces(message: _Message) -> list[_Piece]:
    content = message.content
    return content if isinstance(content, list) else [] if content is None else [content]


def _block(thinking: str) -> dict[str, Json]:
    return {"type": "thinking", "thinking": thinking}


def _called(builder: codec.ReplyBuilder, number: int, call: _Call | None) -> Iterator[chat.Delta]:
    if call is not None:
        function = call.function or _Function()
        name, arguments = function.name or "", codec.arguments_text(function.arguments)
        yield from builder.fragment(number, id=call.id or "", name=name, arguments=arguments)


def _usage(usage: _Usage | None) -> chat.TokenUsage:
    if usage is None:
        return chat.TokenUsage()
    # Prices apply to the billed units, which are fewer than `tokens`.
    counted = usage.billed_units or usage.tokens or _Tokens()
    read = int(counted.input_tokens or 0)
    return chat.TokenUsage(
        input_tokens=read,
        output_tokens=int(counted.output_tokens or 0),
        cached_tokens=min(read, int(usage.cached_tokens or 0)),
    )
