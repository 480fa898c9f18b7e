"""Codec of OpenAI's Responses API.

    POST {api_base}/responses

The provider stores nothing (`store: false`): every request contains the whole conversation as `input` items. Reasoning
arrives encrypted (`include: reasoning.encrypted_content`) and is sent back at its position, followed by the item that
it belongs to. The `phase` of a text is sent back, too. Tool results may contain images and files. The API has no stop
sequences, so a request with some raises ModelError.

This API is the default for OpenAI's own models that need it, for tools with reasoning or at all
(`reasoning.wants_responses`). `api: responses` of a client or model selects it for any other. A request with a
reasoning effort also asks for a summary. OpenAI refuses that for organizations that are not verified; then set
`reasoning_summary: off`.

Sources: https://developers.openai.com/api/reference/resources/responses; the types of github.com/openai/openai-python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ....protocol import chat
from ....protocol.decoding import json_decoder
from ....protocol.errors import ModelError, UpstreamError
from ....protocol.settings.model import Cache, ReasoningSummary
from . import codec, openai, reasoning, stored_reasoning
from .codec import declared, with_valid_ids

Json = Any

FORM = "responses"
"""Format name of stored reasoning: `reasoning` items, and the `phase` of texts."""

_SENT_BACK = ("type", "id", "summary", "content", "encrypted_content")
"""Keys of a `reasoning` item that are sent back."""


class ResponsesCodec:
    """Codec for OpenAI (`own=True`) or for a server with the same interface.

    Args:
        summary: kind of reasoning summary, for requests with a reasoning effort.
    """

    streams_tools = True

    def __init__(self, *, own: bool, cache: Cache = "auto", summary: ReasoningSummary = "auto") -> None:
        self._own = own
        self._cache: Cache = cache if own else "off"
        self._summary = summary

    def headers(self, key: str) -> dict[str, str]:
        """Return the bearer token header; empty without a key."""
        return codec.bearer(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request in the format of the Responses API. Raises ModelError if it has stop sequences."""
        if request.stop:
            raise ModelError(
                f"'{request.model}' does not support `stop`: the Responses API has no such option; try `api: chat`"
            )
        level = reasoning.level_of(request)
        schema = request.response_schema if self._own or not request.tools else None  # see `openai`
        samples = not self._own or reasoning.openai_samples(model, level)
        thinks = level != "none" and (level is not None or reasoning.openai_thinks(model))
        own = request.extra.get("include")
        include = [*(own if isinstance(own, list) else ()), "reasoning.encrypted_content"]
        # Chat completions nest name and schema below `json_schema`; this API has them at the level of `type`.
        text_format = (
            None if schema is None else {"type": "json_schema", **openai.response_format(schema)["json_schema"]}
        )
        body = codec.given(
            model=model,
            input=[item for turn in with_valid_ids(request.messages) for item in _items(turn, request.model)],
            instructions=request.system or None,
            tools=[_tool(tool) for tool in request.tools] or None,
            tool_choice=_choice(request.tool_choice) if request.tools else None,
            text=None if text_format is None else {"format": text_format},
            temperature=request.temperature if samples else None,
            top_p=request.top_p if samples else None,
            max_output_tokens=request.max_tokens,
            reasoning=self._reasoning(level),
            include=include if thinks else None,
            prompt_cache_key=openai.prefix(request) if codec.caches(self._cache, request) else None,
            stream=stream or None,
        )
        body["store"] = False
        return codec.Outgoing("/responses", msgspec.json.encode({**request.extra, **body}), _decoded, ResponsesReader)

    def _reasoning(self, level: chat.ReasoningEffort | None) -> Json:
        if level is None:
            return None
        return codec.given(effort=level, summary=None if self._summary == "off" or level == "none" else self._summary)


class ResponsesReader(codec.StreamReader):
    """Reader of one streamed response, which ends with `response.completed` or `response.incomplete`.

    `response.failed` and `error` raise an error.
    """

    form = FORM

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[int, int] = {}  # streamed characters of each item

    def take(self, data: str) -> Iterator[chat.Delta]:
        """Yield the deltas of one event. Unknown events yield nothing."""
        if data == "[DONE]":  # sent by compatible servers, not by OpenAI
            return
        event = codec.read(_decode_event, data)
        if not isinstance(event.delta, str):  # an unknown kind of event
            return
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                if event.type == "response.refusal.delta":
                    self.builder.stop = "refused"
                self._count(event)
                yield from self.builder.text(event.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._count(event)
                yield from self.builder.reasoning(event.delta)
            case "response.reasoning_summary_part.added" if event.summary_index:
                yield from self.builder.reasoning("\n\n")
            case "response.function_call_arguments.delta":
                self._count(event)
                yield from self.builder.fragment(event.output_index, arguments=event.delta)
            case "response.output_item.added" if event.item is not None and event.item.type == "function_call":
                item = event.item
                yield from self.builder.fragment(event.output_index, id=item.call_id or "", name=item.name or "")
            case "response.output_item.done" if event.item is not None:
                yield from _add(self.builder, event.output_index, event.item, self._said.get(event.output_index, 0))
                self._said.setdefault(event.output_index, 0)
            case "response.completed" | "response.incomplete" | "response.failed" if event.response is not None:
                yield from self._end(event.response)
            case "error":
                _fail(event.error or _Error(event.code, event.message), heard=bool(self._said))

    def _count(self, event: _Event) -> None:
        self._said[event.output_index] = self._said.get(event.output_index, 0) + len(event.delta)

    def _end(self, response: _Response) -> Iterator[chat.Delta]:
        if response.status == "failed" or response.error is not None:
            _fail(response.error or _Error(), heard=bool(self._said))
        for index, item in enumerate(response.output or ()):
            if index not in self._said:  # some servers send items only here, without events of their own
                yield from _add(self.builder, index, item, 0)
        self.ended = True
        _finish(self.builder, response)


# --- out --------------------------------------------------------------------------------------------------


def _items(turn: chat.Turn, model: str) -> Iterator[Json]:
    match turn:
        case chat.UserTurn():
            yield {"role": "user", "content": codec.blocks(turn.content, _part) or codec.NOTHING}
        case chat.AssistantTurn():
            items = list(_assistant_items(turn, model))
            while items and items[-1].get("type") == "reasoning":  # the API refuses reasoning without a following item
                items.pop()
            yield from items
        case chat.ToolTurn():
            yield {"type": "function_call_output", "call_id": turn.call, "output": codec.blocks(turn.content, _part)}


def _assistant_items(turn: chat.AssistantTurn, model: str) -> Iterator[Json]:
    for piece in stored_reasoning.sent(turn, model, FORM):
        if isinstance(piece, str):
            yield {"role": "assistant", "content": piece}
        elif isinstance(piece, chat.ToolCall):
            arguments = codec.arguments_sent(piece)
            yield {"type": "function_call", "call_id": piece.id, "name": piece.name, "arguments": arguments}
        elif piece[0].get("type") == "reasoning":
            yield {key: value for key, value in piece[0].items() if key in _SENT_BACK}
        elif piece[1]:
            phase = {"phase": piece[0]["phase"]} if isinstance(piece[0].get("phase"), str) else {}
            yield {"role": "assistant", "content": piece[1], **phase}


def _part(part: chat.TextPart | chat.ImagePart | chat.FilePart) -> Json:
    match part:
        case chat.TextPart():
            return {"type": "input_text", "text": part.text}
        case chat.ImagePart():
            return {"type": "input_image", "image_url": part.url or codec.data_url(part), "detail": "auto"}
        case chat.FilePart(media_type="application/pdf"):
            return {"type": "input_file", "filename": part.name, "file_data": codec.data_url(part)}
        case chat.FilePart():
            return {"type": "input_text", "text": codec.file_as_text(part)}


def _tool(tool: chat.Tool) -> Json:
    """Return a tool with `strict: false`: strict is the default of this API and requires other schemas."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": declared(tool.parameters),
        "strict": False,
    }


def _choice(choice: str) -> Json:
    if choice in ("auto", "none", "required"):
        return None if choice == "auto" else choice
    return {"type": "function", "name": choice}


# --- in ---------------------------------------------------------------------------------------------------


class _Content(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    content: list[_Content] | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Json = None
    summary: list[_Content] | None = None
    encrypted_content: str | None = None


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Error(msgspec.Struct):
    code: Json = None
    message: str | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    id: Json = None
    status: str | None = None
    output: list[_Item] | None = None
    usage: _Usage | None = None
    error: _Error | None = None
    incomplete_details: _Incomplete | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    summary_index: int = 0
    delta: Json = ""
    item: _Item | None = None
    response: _Response | None = None
    code: Json = None
    message: str | None = None
    error: _Error | None = None


_decode_response = json_decoder(_Response).decode
_decode_event = json_decoder(_Event).decode


def _decoded(body: bytes) -> chat.ChatReply:
    response = codec.read(_decode_response, body)
    if response.status == "failed" or response.error is not None:
        _fail(response.error or _Error(), heard=False)
    if response.status not in ("completed", "incomplete", None):
        raise UpstreamError(f"the response is incomplete (`status: {response.status}`)")
    if response.output is None:
        raise ModelError("the provider's response has no output")
    builder = codec.ReplyBuilder(FORM)
    for index, item in enumerate(response.output):
        list(_add(builder, index, item, 0))
    _finish(builder, response)
    return builder.build()


def _add(builder: codec.ReplyBuilder, index: int, item: _Item, said: int) -> Iterator[chat.Delta]:
    """Add a complete item and yield its deltas.

    `said` characters were already streamed; then only its stored parts are added. Only the complete item contains
    them: the phase, the ids and the encrypted reasoning.
    """
    match item.type:
        case "message":
            texts = [content.refusal or content.text or "" for content in item.content or ()]
            if any(content.refusal for content in item.content or ()):
                builder.stop = "refused"
            if not said:
                for text in texts:
                    yield from builder.text(text)
            if item.phase:
                builder.within({"phase": item.phase}, sum(map(len, texts)))
        case "function_call":
            arguments = "" if said else codec.arguments_text(item.arguments)
            yield from builder.fragment(index, id=item.call_id or "", name=item.name or "", arguments=arguments)
        case "reasoning":
            shown = [*(item.summary or ()), *(item.content or ())]
            if not said:
                yield from builder.reasoning("\n\n".join(part.text or "" for part in shown))
            if item.encrypted_content or item.content:
                kept = {
                    "type": "reasoning",
                    "id": item.id,
                    "summary": [{"type": "summary_text", "text": part.text or ""} for part in item.summary or ()],
                    "content": [{"type": "reasoning_text", "text": part.text or ""} for part in item.content or ()],
                    "encrypted_content": item.encrypted_content,
                }
                builder.thought({key: value for key, value in kept.items() if value or key == "summary"})


def _finish(builder: codec.ReplyBuilder, response: _Response) -> None:
    if response.status == "incomplete":
        reason = response.incomplete_details.reason if response.incomplete_details is not None else None
        builder.ends(reason or "length")
    builder.usage = _usage(response.usage)
    builder.id = response.id


_PASSING = ("server_error", "vector_store_timeout")
"""Codes of transient failures."""


def _fail(error: _Error, *, heard: bool) -> None:
    """Raise the error. A rate limit after streamed text has no status 429, so the limiter does not repeat the try."""
    text = error.message or str(error.code or "") or "the provider reported a failure without a reason"
    if error.code == "rate_limit_exceeded":
        raise UpstreamError(text, status=None if heard else 429)
    if error.code is None or error.code in _PASSING:
        raise UpstreamError(text)
    raise ModelError(f"{text} ({error.code})")


def _usage(usage: _Usage | None) -> chat.TokenUsage:
    if usage is None:
        return chat.TokenUsage()
    read, written = usage.input_tokens_details or _InputDetails(), usage.output_tokens_details or _OutputDetails()
    return chat.TokenUsage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cached_tokens=read.cached_tokens or 0,
        cache_write_tokens=read.cache_write_tokens or 0,
        reasoning_tokens=written.reasoning_tokens or 0,
    )
