"""Codec of Ollama's chat.

    POST {api_base}/api/chat

Streams are lines of JSON. Arguments of tool calls are objects in this format, and calls have no ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ....protocol import chat
from ....protocol.decoding import json_decoder
from ....protocol.errors import ModelError, UpstreamError
from ...io.http.sse import MAX_EVENT
from . import codec, reasoning, stored_reasoning
from .codec import function_of

Json = Any

FORM = "ollama"
"""Format name of stored reasoning: one object with the text as `thinking`."""


class OllamaCodec:
    """Translator between provider-neutral chat requests and Ollama's format."""

    streams_tools = True

    def headers(self, key: str) -> dict[str, str]:
        """Return the bearer token header; empty without a key. Ollama needs none, but a proxy in front of it may."""
        return codec.bearer(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request in Ollama's format, which has no tool choice.

        With `none`, no tools are sent. A tool that must be called by name is sent alone. A response schema is sent only
        without tools.
        """
        messages: list[Json] = [{"role": "system", "content": request.system}] if request.system else []
        messages.extend(_message(turn, request.model) for turn in request.messages)
        body: dict[str, Json] = {"model": model, "messages": messages, "stream": stream}
        if request.tools and request.tool_choice != "none":
            offered = [tool for tool in request.tools if request.tool_choice in ("auto", "required", tool.name)]
            body["tools"] = [function_of(tool) for tool in offered]
        level = reasoning.level_of(request)
        if level is not None:
            body["think"] = _think(level, model)
        if request.response_schema is not None and not request.tools:  # a format would prevent tool calls
            body["format"] = request.response_schema
        options = codec.given(
            temperature=request.temperature,
            top_p=request.top_p,
            num_predict=request.max_tokens,
            stop=request.stop or None,
        )
        own = request.extra.get("options")
        if options or own:
            body["options"] = {**own, **options} if isinstance(own, dict) else options
        return codec.Outgoing("/api/chat", msgspec.json.encode({**request.extra, **body}), _decoded, OllamaReader)


class OllamaReader(codec.StreamReader):
    """Reader of one streamed reply, whose last line has `done: true`."""

    form = FORM
    lines = True

    def __init__(self) -> None:
        super().__init__()
        self._thought: list[str] = []
        # JSON lines, not server-sent events: a line may be split between two pieces of the body.
        self._rest = bytearray()
        self._calls = 0

    def feed(self, data: bytes) -> Iterator[chat.Delta]:
        """Yield the deltas of the lines that `data` completes.

        Raises:
            ModelError, UpstreamError: a line is not in the format or reports an error, or is longer than `MAX_EVENT`.
        """
        first, *others = data.split(b"\n")
        self._rest += first
        if others:
            *lines, rest = bytes(self._rest), *others
            self._rest = bytearray(rest)
            for line in lines:
                if line.strip():
                    yield from self._line(line)
        if len(self._rest) > MAX_EVENT:
            raise UpstreamError(f"the server sent a line of more than {MAX_EVENT} bytes")

    def rest(self) -> Iterator[chat.Delta]:
        """Yield the deltas of a last line without a line end, if it is complete JSON."""
        line = bytes(self._rest)
        self._rest.clear()
        if line.strip() and codec.is_json(line):
            yield from self._line(line)

    def take(self, data: str) -> Iterator[chat.Delta]:
        """Yield the deltas of one line."""
        yield from self._line(data.encode())

    def _line(self, line: bytes) -> Iterator[chat.Delta]:
        answer = codec.read(_decode_line, line)
        if answer.error:
            raise UpstreamError(answer.error)
        if answer.message.thinking:
            self._thought.append(answer.message.thinking)
            yield from self.builder.reasoning(answer.message.thinking)
        yield from self.builder.text(answer.message.content or "")
        for call in answer.message.tool_calls or ():
            arguments = codec.arguments_text(call.function.arguments)
            yield from self.builder.call(self._calls, name=call.function.name, arguments=arguments)
            self._calls += 1
        if answer.done:
            self.ended = True
            if self._thought and self._calls:  # the model continues its reasoning after the tool results
                self.builder.thought({"thinking": "".join(self._thought)})
            self.builder.ends(answer.done_reason)
            self.builder.part_thinking()
            self.builder.usage = chat.TokenUsage(
                input_tokens=answer.prompt_eval_count or 0, output_tokens=answer.eval_count or 0
            )


# --- out --------------------------------------------------------------------------------------------------


def _think(level: chat.ReasoningEffort, model: str) -> Json:
    """Return the `think` option: True or False, or a level for gpt-oss, which cannot turn reasoning off."""
    if "gpt-oss" not in model:
        return level != "none"
    return {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}.get(level, level)


def _message(turn: chat.Turn, model: str) -> Json:
    match turn:
        case chat.UserTurn():
            return {"role": "user", **_content(turn.content)}
        case chat.AssistantTurn():
            message: dict[str, Json] = {"role": "assistant", "content": turn.text if turn.text.strip() else ""}
            for block in stored_reasoning.blocks(turn, model, FORM):
                if isinstance(block, dict) and isinstance(block.get("thinking"), str):
                    message["thinking"] = block["thinking"]
            if turn.tool_calls:
                message["tool_calls"] = [
                    {"function": {"name": call.name, "arguments": call.arguments}} for call in turn.tool_calls
                ]
            return message
        case chat.ToolTurn():
            return {"role": "tool", "tool_name": turn.name, **_content(codec.without_files(turn.content))}


def _content(content: chat.Content) -> dict[str, Json]:
    """Return text and images in separate fields, as this format requires."""
    texts: list[str] = []
    images: list[str] = []
    for part in chat.parts_of(content):
        match part:
            case chat.TextPart():
                texts += [part.text] if part.text.strip() else []
            case chat.ImagePart():
                images.append(_image(part))
            case chat.FilePart():
                texts.append(codec.file_as_text(part))
    message: dict[str, Json] = {"content": "\n".join(texts)}
    return {**message, "images": images} if images else message


def _image(part: chat.ImagePart) -> str:
    if not part.url:
        return codec.base64_of(part)
    if part.url.startswith("data:"):
        return part.url.partition(";base64,")[2]
    raise ModelError(f"Ollama accepts only images that are sent as data, not URLs: {part.url}")


# --- in ---------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str = ""
    arguments: Json = None


class _Call(msgspec.Struct):
    function: _Function


class _MessageBody(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(msgspec.Struct):
    message: _MessageBody = msgspec.field(default_factory=_MessageBody)
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: str = ""


_decode_line = json_decoder(_Line).decode


def _decoded(body: bytes) -> chat.ChatReply:
    reader = OllamaReader()
    list(reader.take(body.decode(errors="replace")) if codec.is_json(body) else reader.feed(body + b"\n"))
    return reader.finish()
