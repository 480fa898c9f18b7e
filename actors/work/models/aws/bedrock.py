"""Codec of Amazon Bedrock's Converse API, one format for all models.

    POST {api_base}/model/{modelId}/converse
    POST {api_base}/model/{modelId}/converse-stream      an answer of binary messages, see `EventStreamParser`

Roles must alternate and the user must begin, so adjacent turns of one role become one message. A conversation with tool
calls must declare tools, even if none may be called now. The format has no tool choice `none`: tools remain declared if
the conversation has calls, and the model chooses. A response schema becomes a tool that must be called, the same as
with Anthropic's API. With other tools, or while Claude reasons, only the prompt contains the schema.

Each model has its own fields for the reasoning effort (`additionalModelRequestFields`). Supported are Claude, Nova and
OpenAI's open models. Reasoning is sent back as `reasoningContent`, signed or redacted.

Source: the service model of botocore, `bedrock-runtime/2023-09-30/service-2.json`.

**Prompt caching.** Bedrock caches everything before a `cachePoint` block; a request may have four. The positions are
the same as for Anthropic (see `anthropic`): the end of the constant part, of the conversation, and of the previous
request. Models without caching refuse the request, so `auto` marks only requests to models that are known to support
it: Claude from 3.7 on, 3.5 Haiku, and Amazon's Nova except the speech models. `5m` and `1h` mark requests to any model,
since the name of an inference profile says nothing about it. Only Claude from 4.5 on supports an hour. Nova accepts no
cache point among the tools.
https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from zlib import crc32

import msgspec

from .....protocol import chat
from .....protocol.decoding import json_decoder
from .....protocol.errors import ModelError, UpstreamError
from .....protocol.settings.model import Cache
from .. import codec, reasoning, stored_reasoning
from ..anthropic import offer, unwrapped
from ..codec import declared, with_valid_ids

if TYPE_CHECKING:
    import httpx

    from .credential_chain import RoleSigner
    from .keys import Signer


Json = Any

FORM = "bedrock"
"""Format name of stored reasoning: the content of `reasoningContent` blocks."""

_THOUGHTS = {"reasoningText", "redactedContent"}

ROOM = 4096
"""Token limit of a reply, in addition to its reasoning, if the request has none and Claude reasons."""


class BedrockCodec:
    """Translator between provider-neutral chat requests and Bedrock's Converse format.

    Args:
        signer: signs every request; None if a bearer token (a Bedrock API key) is used.
    """

    streams_tools = True

    def __init__(self, signer: Signer | RoleSigner | None, *, cache: Cache = "auto") -> None:
        self._signer = signer
        self._cache = cache

    def headers(self, key: str) -> dict[str, str]:
        """Return the bearer token header; empty for signed requests."""
        return codec.bearer(key) if self._signer is None else {}

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request in the Converse format.

        Raises:
            ModelError: the request has a reasoning effort for a model whose options are unknown, an image by URL, or
                a file that is neither PDF nor text.
        """
        tools, choice, thinks, unwrap = offer(request, model)
        # `offer` assumes Claude's rules for unknown names; other models have their own fields, see `_more_fields`.
        if reasoning.claude(model) is None:
            thinks = reasoning.ThinkingPlan()
        options = codec.given(
            maxTokens=request.max_tokens or (ROOM + thinks.room if thinks.thinking and thinks.on else None),
            temperature=request.temperature if thinks.samples else None,
            topP=request.top_p if thinks.samples else None,
            stopSequences=request.stop or None,
        )
        body = codec.given(
            messages=_messages(with_valid_ids(request.messages), request.model),
            system=[{"text": request.system}] if request.system.strip() else None,
            inferenceConfig=options or None,
            toolConfig=_tools(tools, choice, request.messages),
            additionalModelRequestFields=_more_fields(request, model, thinks) or None,
        )
        mark(body, self._cache, request, model)
        # ARNs of inference profiles contain slashes and colons, which must not become parts of the path.
        path = f"/model/{quote(model, safe='')}/{'converse-stream' if stream else 'converse'}"
        return codec.Outgoing(
            path,
            msgspec.json.encode({**request.extra, **body}),
            partial(_decoded, unwrap=unwrap),
            partial(BedrockReader, unwrap=unwrap),
            None if self._signer is None else partial(signed, self._signer),
        )


def signed(signer: Signer | RoleSigner, url: httpx.URL, body: bytes) -> Mapping[str, str]:
    """Return the signature headers of a POST request."""
    fields = (("host", url.netloc.decode("ascii")), ("content-type", "application/json"))
    return signer.headers("POST", url.raw_path.decode("ascii"), fields, body)


class BedrockReader(codec.StreamReader):
    """Reader of one streamed reply, which ends with `messageStop`. The token counts follow after that.

    Args:
        unwrap: True if the arguments of the schema tool are the text of the reply.
    """

    form = FORM

    def __init__(self, *, unwrap: bool) -> None:
        super().__init__()
        self._unwrap = unwrap
        self._thinking: tuple[int, dict[str, Json], list[str]] | None = None
        self._messages = EventStreamParser()
        self._said = False

    def feed(self, data: bytes) -> Iterator[chat.Delta]:
        """Yield the deltas that `data` completes. Raises ModelError or UpstreamError if the stream reports an error."""
        for message in self._messages.feed(data):
            for delta in self._message(message):
                self._said = True
                if self._unwrap and isinstance(delta, chat.ToolCallDelta):
                    yield chat.TextDelta(delta.arguments)  # the only tool's arguments are the reply's text
                else:
                    yield delta

    def rest(self) -> Iterator[chat.Delta]:
        """Yield nothing: each message states its length, so an incomplete one was cut off."""
        return iter(())

    def finish(self) -> chat.ChatReply:
        """Return the reply. Raises UpstreamError before `messageStop`."""
        self._thought_ends()
        self.builder.part_thinking()
        reply = super().finish()
        return unwrapped(reply) if self._unwrap else reply

    def _message(self, message: EventStreamMessage) -> Iterator[chat.Delta]:
        headers = message.headers
        if headers.get(":message-type", "event") != "event":
            self._fail(headers, message.payload)
        event = codec.read(decode_event, message.payload)
        match headers.get(":event-type"):
            case "contentBlockStart" if event.start is not None and event.start.tool_use is not None:
                use = event.start.tool_use
                yield from self.builder.fragment(event.content_block_index, id=use.tool_use_id, name=use.name)
            case "contentBlockDelta" if event.delta is not None:
                yield from self._more(event.content_block_index, event.delta)
            case "messageStop":
                self.ended = True
                self.builder.ends(event.stop_reason)
            case "metadata":
                self.builder.usage = usage_of(event.usage)

    def _more(self, index: int, delta: Delta) -> Iterator[chat.Delta]:
        yield from self.builder.text(delta.text)
        if delta.reasoning_content is not None:
            yield from self._thought(index, delta.reasoning_content)
        if delta.tool_use is not None and delta.tool_use.input:
            yield from self.builder.fragment(index, arguments=delta.tool_use.input)

    def _thought(self, index: int, more: Reasoning) -> Iterator[chat.Delta]:
        if more.redacted_content:
            self.builder.thought({"redactedContent": more.redacted_content})
            return
        # The block is added to the reply at its start, to hold its position, and filled with text at its end.
        if self._thinking is None or self._thinking[0] != index:
            self._thought_ends()
            block: dict[str, Json] = {"reasoningText": {"text": ""}}
            self.builder.thought(block)
            self._thinking = (index, block, [])
        _, block, pieces = self._thinking
        pieces.append(more.text)
        if more.signature:
            block["reasoningText"]["signature"] = block["reasoningText"].get("signature", "") + more.signature
        yield from self.builder.reasoning(more.text)

    def _thought_ends(self) -> None:
        if self._thinking is not None:
            _, block, pieces = self._thinking
            block["reasoningText"]["text"] = "".join(pieces)
            self._thinking = None

    def _fail(self, headers: Mapping[str, str], payload: bytes) -> None:
        """Raise the error of an exception message.

        Throttling after streamed text has no status 429, so the limiter does not repeat the try.
        """
        kind = headers.get(":exception-type") or headers.get(":error-code") or "error"
        text = headers.get(":error-message") or _error_of(payload) or "no explanation"
        if kind in ("validationException", "accessDeniedException"):
            raise ModelError(f"{text} ({kind})")
        raise UpstreamError(
            f"{text} ({kind})", status=429 if kind == "throttlingException" and not self._said else None
        )


# --- out --------------------------------------------------------------------------------------------------


def _more_fields(request: chat.ChatRequest, model: str, thinks: reasoning.ThinkingPlan) -> dict[str, Json]:
    """Return the model's own fields for the reasoning effort. Raises ModelError for an unknown model with an effort."""
    own = request.extra.get("additionalModelRequestFields")
    fields: dict[str, Json] = dict(own) if isinstance(own, dict) else {}
    level = reasoning.level_of(request)
    if reasoning.claude(model) is not None:
        more = codec.given(thinking=thinks.thinking, output_config=thinks.effort and {"effort": thinks.effort})
        return fields | more
    if level is None or level == "none":
        return fields
    least = {"minimal": "low", "xhigh": "high", "max": "high"}.get(level, level)
    if "nova" in model:
        return fields | {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": least}}
    if "openai.gpt-oss" in model:
        return fields | {"reasoning_effort": least}
    raise ModelError(
        f"the reasoning options of '{model}' on Bedrock are unknown: remove `reasoning_effort` and `thinking_budget`"
    )


def _messages(turns: Sequence[chat.Turn], model: str) -> list[Json]:
    messages: list[Json] = []
    if turns and isinstance(turns[0], chat.AssistantTurn):
        messages.append({"role": "user", "content": [{"text": codec.EARLIER}]})
    for turn in turns:
        role = "assistant" if isinstance(turn, chat.AssistantTurn) else "user"
        blocks = list(_blocks(turn, model))
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def _blocks(turn: chat.Turn, model: str) -> Iterator[Json]:
    match turn:
        case chat.UserTurn():
            yield from _parts(turn.content)
        case chat.AssistantTurn():
            for piece in stored_reasoning.sent(turn, model, FORM):
                if isinstance(piece, str):
                    yield {"text": piece}
                elif isinstance(piece, chat.ToolCall):
                    given_to = {"malformed": piece.malformed} if piece.malformed else piece.arguments
                    yield {"toolUse": {"toolUseId": piece.id, "name": piece.name, "input": given_to}}
                # Stored blocks may come from an edited session file: other keys would make the API refuse the request.
                elif not piece[0].keys() - _THOUGHTS:
                    yield {"reasoningContent": piece[0]}
            if not turn.text.strip() and not turn.tool_calls:
                yield {"text": codec.NOTHING}
        case chat.ToolTurn():
            result = {"toolUseId": turn.call, "content": _parts(turn.content)}
            yield {"toolResult": {**result, "status": "error"} if turn.error else result}


def _parts(content: chat.Content) -> list[Json]:
    """Return the parts as blocks without empty texts. The API requires a text block together with a document."""
    blocks = [_part(part) for part in chat.parts_of(content) if not codec.is_blank(part)]
    if not any("text" in block for block in blocks) and (not blocks or any("document" in block for block in blocks)):
        blocks.append({"text": codec.NOTHING})
    return blocks


def _part(part: chat.TextPart | chat.ImagePart | chat.FilePart) -> Json:
    match part:
        case chat.TextPart():
            return {"text": part.text}
        case chat.ImagePart():
            return {"image": _image(part)}
        case chat.FilePart(media_type="application/pdf"):
            # The API refuses any other characters in the name of a document.
            name = re.sub(r"[^A-Za-z0-9 ()\[\]-]+", "-", part.name) or "document"
            return {"document": {"format": "pdf", "name": name, "source": {"bytes": codec.base64_of(part)}}}
        case chat.FilePart():
            return {"text": codec.file_as_text(part)}


def _image(part: chat.ImagePart) -> Json:
    media_type, data = codec.media_type_of(part), ""
    if part.url.startswith("data:"):
        media_type, _, data = part.url.removeprefix("data:").partition(";base64,")
    elif part.url:
        raise ModelError(f"Bedrock accepts only images that are sent as data, not URLs: {part.url}")
    form = media_type.removeprefix("image/")
    return {"format": "jpeg" if form == "jpg" else form, "source": {"bytes": data or codec.base64_of(part)}}


def _tools(tools: Sequence[chat.Tool], choice: str, turns: Sequence[chat.Turn]) -> Json:
    """Return the declared tools and the tool choice; None if no tools need to be declared."""
    called = {call.name for turn in turns if isinstance(turn, chat.AssistantTurn) for call in turn.tool_calls}
    if choice == "none" and not called:
        return None
    # Without tools in the request, the tools of past calls are declared by name: see the module docstring.
    specs = [_spec(tool) for tool in tools] or [_spec(chat.Tool(name=name)) for name in sorted(called)]
    if not specs:
        return None
    chosen: Json = {"auto": None, "none": None, "required": {"any": {}}}.get(choice, {"tool": {"name": choice}})
    return codec.given(tools=specs, toolChoice=chosen if tools else None)


def _spec(tool: chat.Tool) -> Json:
    schema = declared(tool.parameters) or {"type": "object"}
    spec = codec.given(name=tool.name, description=tool.description or None, inputSchema={"json": schema})
    return {"toolSpec": spec}


# --- in ---------------------------------------------------------------------------------------------------


def _decoded(body: bytes, *, unwrap: bool) -> chat.ChatReply:
    answer = codec.read(decode_answer, body)
    if answer.output is None or answer.output.message is None:
        raise ModelError("the provider's response has no message")
    builder = codec.ReplyBuilder(FORM)
    for index, block in enumerate(answer.output.message.content):
        list(builder.text(block.text))
        if block.reasoning_content is not None:
            _thought(builder, block.reasoning_content)
        if block.tool_use is not None:
            use = block.tool_use
            arguments = codec.arguments_text(use.input)
            list(builder.fragment(index, id=use.tool_use_id, name=use.name, arguments=arguments))
    builder.part_thinking()
    builder.ends(answer.stop_reason)
    builder.usage = usage_of(answer.usage)
    reply = builder.build()
    return unwrapped(reply) if unwrap else reply


def _thought(builder: codec.ReplyBuilder, block: ReasoningBlock) -> None:
    if block.reasoning_text is not None:
        text = block.reasoning_text
        list(builder.reasoning(text.text))
        signed = {"signature": text.signature} if text.signature else {}
        builder.thought({"reasoningText": {"text": text.text, **signed}})
    elif block.redacted_content:
        builder.thought({"redactedContent": block.redacted_content})


def _error_of(payload: bytes) -> str:
    try:
        return codec.read(decode_failure, payload).message
    except ModelError:
        return payload[:200].decode("utf-8", errors="replace")


_NOVA = re.compile(r"amazon\.nova-(?:2-)?(?:micro|lite|pro|premier)")


def mark(body: dict[str, Json], cache: Cache, request: chat.ChatRequest, model: str) -> None:
    """Add cache points to `body`, a Converse request, if the prompt should be cached (`codec.caches`).

    With `auto`, only a model that is known to support caching gets them.
    """
    nova = _NOVA.search(model) is not None
    claude = reasoning.claude(model)
    known = nova or (claude is not None and (claude.version >= (3, 7) or "3-5-haiku" in model))
    if not codec.caches(cache, request) or (cache == "auto" and not known):
        return
    point: Json = {"type": "default"}
    if cache == "1h" and not nova and (claude is None or claude.version >= (4, 5)):
        point["ttl"] = "1h"
    block = {"cachePoint": point}
    if "system" in body:
        body["system"] = [*body["system"], block]
    elif "toolConfig" in body and not nova:
        body["toolConfig"] = {**body["toolConfig"], "tools": [*body["toolConfig"]["tools"], block]}
    for message in body["messages"][-1:-4:-2]:
        message["content"] = [*message["content"], block]


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


# --- event streams: binary messages with headers and two checksums each
#
#     total length (4), length of the headers (4), CRC of these (4), headers, payload, CRC of all before (4)
#
# A header is the length of its name (1), the name, a type (1) and a value. All numbers are big-endian; the CRC is
# zlib's CRC-32. Source: the Smithy specification of `application/vnd.amazon.eventstream`.


MOST_OF_MESSAGE = 24 * 1024 * 1024
"""Maximum size of a message in bytes, which is AWS's own limit of a payload."""

_PRELUDE = struct.Struct("!III")
_CRC = struct.Struct("!I")
_LENGTH = struct.Struct("!H")
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Sizes of header values in bytes by type: true, false, integers, a time, a UUID. Types 6 and 7 state their length."""

_TEXT = 7


class EventStreamMessage(msgspec.Struct, frozen=True):
    """Message of a stream. `headers` contains only the headers with text values."""

    headers: dict[str, str]
    payload: bytes


class EventStreamParser:
    """Incremental parser of a stream: call `feed` with bytes as they arrive."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[EventStreamMessage]:
        """Yield the messages that `data` completes. Raises UpstreamError if the stream is damaged."""
        self._rest += data
        while len(self._rest) >= _PRELUDE.size:
            total, headers, checksum = _PRELUDE.unpack_from(self._rest)
            # Checked first: a damaged length would make the parser wait for bytes that never arrive.
            if crc32(self._rest[:8]) != checksum:
                raise UpstreamError("the provider's response is damaged: a message's prelude has a wrong checksum")
            if total > MOST_OF_MESSAGE or total < _PRELUDE.size + headers + _CRC.size:
                raise UpstreamError(
                    f"the provider's response is damaged: a message claims {total} bytes, {headers} of them headers"
                )
            if len(self._rest) < total:
                return
            message = bytes(self._rest[:total])
            del self._rest[:total]
            if crc32(message[:-4]) != _CRC.unpack(message[-4:])[0]:
                raise UpstreamError("the provider's response is damaged: a message has a wrong checksum")
            begin = _PRELUDE.size + headers
            yield EventStreamMessage(_headers(message[_PRELUDE.size : begin]), message[begin:-4])


def _headers(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name = data[at + 1 : at + 1 + data[at]].decode()
            at += 1 + data[at]
            kind = data[at]
            at += 1
            if kind in _SIZES:
                at += _SIZES[kind]
                continue
            size = _LENGTH.unpack_from(data, at)[0]
            at += _LENGTH.size
            if kind == _TEXT:
                found[name] = data[at : at + size].decode()
            elif kind != _TEXT - 1:
                raise ValueError(f"type {kind}")
            at += size
        if at > len(data):
            raise ValueError("the headers are incomplete")
    except (IndexError, struct.error, ValueError) as error:  # wrong UTF-8 is a ValueError
        raise UpstreamError(f"the provider's response is damaged: a message header can't be read ({error})") from error
    return found
