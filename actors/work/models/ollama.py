"""Ollama's chat.

    POST {api_base}/api/chat

Streams are lines of JSON. Arguments of tool calls are objects on this wire, and calls have no ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ....protocol import chat
from ....protocol.decoding import json_decoder
from ....protocol.errors import ModelError, UpstreamError
from ...io.http.sse import MAX_EVENT
from . import codec
from .reasoning import effort, woven

Json = Any

FORM = "ollama"
"""Name of the format in which thinking is kept: one object with the text as `thinking`."""


class OllamaCodec:
    """Translates for Ollama."""

    streams_tools = True

    def headers(self, key: str) -> dict[str, str]:
        """A bearer token where there is a key (a proxy in front may want one), else nothing."""
        return codec.bearer(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """The request as a chat."""
        messages: list[Json] = [{"role": "system", "content": request.system}] if request.system else []
        messages.extend(_message(turn, request.model) for turn in request.messages)
        body: dict[str, Json] = {"model": model, "messages": messages, "stream": stream}
        if request.tools and request.tool_choice != "none":
            offered = [tool for tool in request.tools if request.tool_choice in ("auto", "required", tool.name)]
            body["tools"] = [codec.function_of(tool) for tool in offered]
        level = effort.level(request)
        if level is not None:
            body["think"] = _think(level, model)
        if request.response_schema is not None:
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
    """Reads the lines of one streamed reply; the last of them says that it is done."""

    form = FORM

    def __init__(self) -> None:
        super().__init__()
        self._thought: list[str] = []
        self._rest = bytearray()
        self._calls = 0

    def feed(self, data: bytes) -> Iterator[chat.Delta]:
        """The pieces that the lines completed by `data` hold.

        Raises:
            UpstreamError: a line has no end.
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

    def _line(self, line: bytes) -> Iterator[chat.Delta]:
        said = codec.read(_decode_line, line)
        if said.error:
            raise UpstreamError(said.error)
        if said.message.thinking:
            self._thought.append(said.message.thinking)
            yield from self.builder.reasoning(said.message.thinking)
        yield from self.builder.text(said.message.content or "")
        for call in said.message.tool_calls or ():
            arguments = codec.arguments_text(call.function.arguments)
            yield from self.builder.call(self._calls, name=call.function.name, arguments=arguments)
            self._calls += 1
        if said.done:
            self.ended = True
            if self._thought and self._calls:  # after a tool's result it goes on with what it thought
                self.builder.thought({"thinking": "".join(self._thought)})
            self.builder.ends(said.done_reason)
            self.builder.part_thinking()
            self.builder.usage = chat.TokenUsage(
                input_tokens=said.prompt_eval_count or 0, output_tokens=said.eval_count or 0
            )


# --- out --------------------------------------------------------------------------------------------------


def _think(level: chat.ReasoningEffort, model: str) -> Json:
    """Whether it thinks; gpt-oss alone has levels, and can't do without."""
    if "gpt-oss" not in model:
        return level != "none"
    return {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}.get(level, level)


def _message(turn: chat.Turn, model: str) -> Json:
    match turn:
        case chat.UserTurn():
            return {"role": "user", **_content(turn.content)}
        case chat.AssistantTurn():
            message: dict[str, Json] = {"role": "assistant", "content": turn.text if turn.text.strip() else ""}
            for block in woven.blocks(turn, model, FORM):
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
    """Text and images apart, as this wire wants them."""
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
    raise ModelError(f"ollama takes images as bytes only, not as a URL: {part.url}")


# --- in ---------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct):
    name: str = ""
    arguments: Json = None


class _Call(msgspec.Struct):
    function: _Function


class _Said(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(msgspec.Struct):
    message: _Said = msgspec.field(default_factory=_Said)
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: str = ""


_decode_line = json_decoder(_Line).decode


def _decoded(body: bytes) -> chat.ChatReply:
    reader = OllamaReader()
    list(reader.feed(body + b"\n"))
    return reader.finish()
