"""Codec of OpenAI's chat completions, the format of most other servers too.

    POST {api_base}/chat/completions

Client types `openai` and `openai-compatible` differ in the token limit of the reply: OpenAI itself requires
`max_completion_tokens`, the others expect `max_tokens`.

The reasoning effort is `reasoning_effort`. OpenRouter and DeepSeek use other fields; the base URL selects them. OpenAI
never returns reasoning here. Other servers return it in one of three fields, and get the same field back: DeepSeek
refuses a history whose tool calls lack it. OpenAI's newer interface is in `responses`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from ....protocol import chat
from ....protocol.decoding import json_decoder
from ....protocol.errors import ModelError, UpstreamError
from ....protocol.settings.model import Cache
from . import codec, reasoning, stored_reasoning
from .codec import function_of, uses_mistral_ids, with_valid_ids
from .stored_reasoning import OPEN, ThinkTagParser

Json = Any

FORM = "chat"
"""Format name of stored reasoning: the fields of the message that contained it."""

_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")


class OpenAiCodec:
    """Codec for OpenAI (`own=True`) or for a compatible server at the base URL `base`."""

    streams_tools = True

    def __init__(self, *, own: bool, cache: Cache = "auto", base: str = "") -> None:
        self._own = own
        self._base = base
        self._decoded = partial(_decoded, own=own)
        self._reader = partial(OpenAiReader, own=own)
        self._dialect = next((name for name in _DIALECTS if name in base), "")
        self._limit_key = "max_completion_tokens" if own else "max_tokens"
        self._cache: Cache = cache if own else "off"  # compatible servers may refuse the unknown `prompt_cache_key`

    def headers(self, key: str) -> dict[str, str]:
        """Return the bearer token header; empty without a key."""
        return codec.bearer(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request as a chat completion."""
        messages: list[Json] = [{"role": "system", "content": request.system}] if request.system else []
        mistral = not self._own and uses_mistral_ids(model, self._base)
        messages.extend(_messages(with_valid_ids(request.messages, mistral=mistral), request.model))
        samples = not self._own or reasoning.openai_samples(model, reasoning.level_of(request))
        # Of the providers with this format, only OpenAI is known to accept a schema and tools in one request.
        schema = request.response_schema if self._own or not request.tools else None
        body = codec.given(
            model=model,
            messages=messages,
            tools=[function_of(tool) for tool in request.tools] or None,
            tool_choice=_choice(request.tool_choice) if request.tools else None,
            response_format=None if schema is None else response_format(schema),
            temperature=request.temperature if samples else None,
            top_p=request.top_p if samples else None,
            **_effort(request, self._dialect),
            stop=request.stop or None,
            **{self._limit_key: request.max_tokens},
        )
        if codec.caches(self._cache, request):
            body["prompt_cache_key"] = prefix(request)
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return codec.Outgoing(
            "/chat/completions",
            msgspec.json.encode({**request.extra, **body}),
            self._decoded,
            self._reader,
        )


class OpenAiReader(codec.StreamReader):
    """Reader of one streamed completion. It ends with `[DONE]` or a finish reason: some servers omit `[DONE]`."""

    form = FORM

    def __init__(self, *, own: bool) -> None:
        super().__init__()
        self._thought = _Thought()
        self._parting = None if own else ThinkTagParser()

    def finish(self) -> chat.ChatReply:
        """Return the reply, with reasoning in tags moved out of the text. Raises UpstreamError if it has no end."""
        if self._parting is not None:
            list(_parted(self.builder, *self._parting.rest()))
            self.builder.part_thinking()
        self._thought.into(self.builder)
        return super().finish()

    def take(self, data: str) -> Iterator[chat.Delta]:
        """Yield the deltas of one chunk."""
        if data == "[DONE]":
            self.ended = True
            return
        chunk = codec.read(_decode_completion, data)
        if chunk.failure is not None:
            raise UpstreamError(codec.error_text(chunk.failure))
        self.builder.id = self.builder.id or chunk.id
        if chunk.usage is not None:
            self.builder.usage = _usage(chunk.usage)
        for choice in chunk.choices:
            if choice.index == 0:  # `extra` may ask for several choices; the reply is the first
                if choice.delta.thinks:
                    self._thought.add(choice.delta)
                yield from _read_message(self.builder, choice.delta, self._parting)
                if choice.finish_reason:
                    self.ended = True
                    self.builder.ends(choice.finish_reason)


# --- out --------------------------------------------------------------------------------------------------


_DIALECTS = ("openrouter.ai", "api.deepseek.com")
"""Hosts with their own fields for the reasoning effort."""


def _effort(request: chat.ChatRequest, dialect: str) -> dict[str, Json]:
    if request.reasoning_effort is None and request.thinking_budget is None:
        return {}
    level = reasoning.level_of(request)
    if dialect == "openrouter.ai":
        tokens = request.thinking_budget if request.reasoning_effort is None else None
        return {"reasoning": {"max_tokens": tokens} if tokens else {"effort": level}}
    if dialect == "api.deepseek.com":
        thinks = {"thinking": {"type": "disabled" if level == "none" else "enabled"}}
        return thinks if level == "none" else {**thinks, "reasoning_effort": level}
    return {"reasoning_effort": level}


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


def prefix(request: chat.ChatRequest) -> str:
    """Return a hash of the constant start of a conversation, as the `prompt_cache_key`.

    OpenAI routes requests with the same key to the machine that has the prefix in its cache.
    """
    names = [tool.name for tool in request.tools]
    return hashlib.blake2b("\n".join([request.system, *names]).encode(), digest_size=8).hexdigest()


def _message(turn: chat.Turn, model: str) -> Json:
    match turn:
        case chat.UserTurn():
            return {"role": "user", "content": codec.blocks(turn.content, _part) or codec.NOTHING}
        case chat.AssistantTurn():
            message: dict[str, Json] = {"role": "assistant", "content": turn.text if turn.text.strip() else None}
            for block in stored_reasoning.blocks(turn, model, FORM) if turn.thought is not None else ():
                if isinstance(block, dict):
                    message |= {key: value for key, value in block.items() if key in _THOUGHTS}
            if not turn.tool_calls and message["content"] is None:
                message["content"] = codec.NOTHING
            if turn.tool_calls:
                message["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {
                            "name": call.name,
                            "arguments": codec.arguments_sent(call),
                        },
                    }
                    for call in turn.tool_calls
                ]
            return message
        case chat.ToolTurn():
            return {"role": "tool", "tool_call_id": turn.call, "content": codec.result_apart(turn)[0]}


def _part(part: chat.TextPart | chat.ImagePart | chat.FilePart) -> Json:
    match part:
        case chat.TextPart():
            return {"type": "text", "text": part.text}
        case chat.ImagePart():
            return {"type": "image_url", "image_url": {"url": part.url or codec.data_url(part)}}
        case chat.FilePart(media_type="application/pdf"):
            return {"type": "file", "file": {"filename": part.name, "file_data": codec.data_url(part)}}
        case chat.FilePart():
            return {"type": "text", "text": codec.file_as_text(part)}


def _choice(choice: str) -> Json:
    if choice in ("auto", "none", "required"):
        return None if choice == "auto" else choice
    return {"type": "function", "function": {"name": choice}}


def response_format(schema: dict[str, Json]) -> Json:
    """Return the `response_format` of a schema. OpenAI refuses `strict` unless every object of it is strict."""
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": _is_strict(schema)},
    }


def _is_strict(schema: Json) -> bool:
    """Return True if every object requires all its properties and admits no others."""
    if isinstance(schema, list):
        return all(_is_strict(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties):
            return False
        return all(_is_strict(value) for value in properties.values())
    return all(_is_strict(value) for value in schema.values())


# --- in ---------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Json = None  # some servers send the object itself


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


class _Chunk(msgspec.Struct):
    text: str = ""
    thinking: Json = None


class _MessageBody(msgspec.Struct):
    content: str | list[_Chunk] | None = None  # Mistral sends a list if the reply contains reasoning
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Json = None
    reasoning_details: Json = None
    tool_calls: list[_Call] | None = None

    @property
    def thinks(self) -> bool:
        """True if the message contains reasoning in a field of its own."""
        return bool(self.reasoning_content or self.reasoning or self.reasoning_details)


class _Choice(msgspec.Struct):
    index: int = 0
    message: _MessageBody = msgspec.field(default_factory=_MessageBody)
    delta: _MessageBody = msgspec.field(default_factory=_MessageBody)
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Completion(msgspec.Struct):
    id: Json = None
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Json = None
    object: Json = ""
    message: Json = None
    detail: Json = None

    @property
    def failure(self) -> Json:
        """Error that a server reported with status 200, in any of its shapes; None if there is none."""
        if self.error is not None:
            return self.error
        return self.message or self.detail or "error" if self.object == "error" or self.is_foreign else None

    @property
    def is_foreign(self) -> bool:
        """True if the object is no completion but a server's own error message."""
        return not self.choices and self.usage is None and bool(self.message or self.detail)


_decode_completion = json_decoder(_Completion).decode


def _decoded(body: bytes, *, own: bool) -> chat.ChatReply:
    completion = codec.read(_decode_completion, body)
    if completion.failure is not None:
        raise ModelError(codec.error_text(completion.failure))
    if not completion.choices:
        raise ModelError("the provider's response has no choices")
    choice = completion.choices[0]
    builder = codec.ReplyBuilder(FORM)
    text = choice.message.content
    # A whole reply needs the tag parser only if it starts with the tag: most do not, and it would copy the text.
    tagged = not own and isinstance(text, str) and text[:64].lstrip().startswith(OPEN)
    parting = ThinkTagParser() if tagged else None
    list(_read_message(builder, choice.message, parting))
    if parting is not None:
        list(_parted(builder, *parting.rest()))
    if not own:
        builder.part_thinking()
    builder.ends(choice.finish_reason)
    builder.usage = _usage(completion.usage)
    builder.id = completion.id
    if choice.message.thinks:
        thought = _Thought()
        thought.add(choice.message)
        thought.into(builder)
    return builder.build()


class _Thought:
    """Reasoning of a reply, by the field that contained it, to be sent back in the same field."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._details: list[dict[str, Json]] = []

    def add(self, message: _MessageBody) -> None:
        if message.reasoning_content:
            self._texts.setdefault("reasoning_content", []).append(message.reasoning_content)
        elif message.reasoning and isinstance(message.reasoning, str):
            self._texts.setdefault("reasoning", []).append(message.reasoning)
        for detail in message.reasoning_details if isinstance(message.reasoning_details, list) else ():
            if isinstance(detail, dict):
                self._add_detail(detail)

    def _add_detail(self, detail: dict[str, Json]) -> None:
        """Append a detail to the last one if index and type match, else start a new one."""
        last = self._details[-1] if self._details else {}
        if "index" not in detail or any(detail.get(key) != last.get(key) for key in ("index", "type")):
            self._details.append(dict(detail))
            return
        for key, value in detail.items():
            if key in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(key), str):
                last[key] += value
            elif value is not None:
                last[key] = value

    def into(self, builder: codec.ReplyBuilder) -> None:
        """Store the reasoning in the reply. Servers expect unsigned text back only together with tool calls."""
        if self._details:
            builder.thought({"reasoning_details": self._details})
        elif self._texts and builder.calls:
            builder.thought({key: "".join(texts) for key, texts in self._texts.items()})


def _parted(builder: codec.ReplyBuilder, thought: str, answer: str) -> Iterator[chat.Delta]:
    yield from builder.reasoning(thought)
    yield from builder.text(answer)


def _read_message(
    builder: codec.ReplyBuilder, message: _MessageBody, parting: ThinkTagParser | None
) -> Iterator[chat.Delta]:
    thinking = message.reasoning_content or (message.reasoning if isinstance(message.reasoning, str) else "")
    yield from builder.reasoning(thinking)
    if isinstance(message.content, list):
        for chunk in message.content:
            thought = chunk.thinking if isinstance(chunk.thinking, list) else ()
            for piece in thought:
                yield from builder.reasoning(str(piece.get("text") or "") if isinstance(piece, dict) else "")
            yield from builder.text(chunk.text)
    elif parting is None or not message.content:
        yield from builder.text(message.content or message.refusal or "")
    else:
        yield from _parted(builder, *parting.take(message.content))
    for position, call in enumerate(message.tool_calls or ()):
        yield from builder.fragment(
            position if call.index is None else call.index,
            id=call.id or "",
            name=call.function.name or "",
            arguments=codec.arguments_text(call.function.arguments),
        )


def _usage(usage: _Usage | None) -> chat.TokenUsage:
    if usage is None:
        return chat.TokenUsage()
    details = usage.prompt_tokens_details or _Details()
    taken, given = usage.prompt_tokens or 0, usage.completion_tokens or 0
    thought = (usage.completion_tokens_details or _OutputDetails()).reasoning_tokens or 0
    if thought and usage.total_tokens == taken + given + thought:  # xAI does not include reasoning in its output count
        given += thought
    return chat.TokenUsage(
        input_tokens=taken,
        output_tokens=given,
        cached_tokens=details.cached_tokens or 0,
        cache_write_tokens=details.cache_write_tokens or 0,
        reasoning_tokens=thought,
    )
