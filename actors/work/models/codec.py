"""Interface of the providers' codecs, with the stream readers and helpers that they share.

A codec is pure: it translates a request into a path with a JSON body, and the bytes of an answer into a `ChatReply`.
No codec opens a connection, so tests need only bytes.

**Answers.** Dozens of servers and gateways copy a provider's format, each with its own deviations. Examples are wrong
indices of tool calls, nulls for absent lists, counts as text, and a whole answer to a streamed request. A strict
decoder rejects usable answers. A switch per server needs a list of servers and versions, which is never complete. So
the readers accept every deviation whose meaning is clear from the bytes, whatever the server: `ReplyBuilder.fragment`
assigns pieces to calls, `StreamOrWhole` detects whole answers, and `read` repairs answers that do not decode. An answer
that still does not decode raises ModelError.

**Schemas of tools.** Schemas of MCP servers follow any draft of JSON Schema. A provider that refuses one schema refuses
the whole request, and so every request of that agent. Anthropic and OpenAI accept no `anyOf`, `oneOf` or `allOf` at the
root, and OpenAI no array without `items`. Both check against JSON Schema 2020-12, where `items` is not a list and
`exclusiveMinimum` not a boolean. So the declared schema is equal to the server's or looser. Calls are checked against
the server's own schema (`tools.checking`), and by the server.

**Call ids.** A conversation may change its model. Its calls have the ids of the provider that produced them, or ids of
callboard if a provider has none. Other providers refuse a whole request because of such an id. Anthropic and Bedrock
accept only letters, digits, `_` and `-`, and each id once in a request. OpenAI accepts at most 40 characters. Mistral,
and servers with its tokenizer, require exactly nine letters and digits.

The stored history is not changed. Each request maps the ids one to one by a hash. So the same history produces the same
request again, and the provider's prompt cache remains valid.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from ....protocol import chat
from ....protocol.chat import AssistantTurn, Tool, ToolTurn, Turn
from ....protocol.errors import EmptyReply, ModelError, ReplyFiltered, UpstreamError
from ....protocol.json_values import UNREADABLE, decode_mended
from ....protocol.settings.model import Cache
from ...io.encodings import image_type
from ...io.http.sse import SseParser
from .stored_reasoning import CLOSE, OPEN, ReasoningOrder

if TYPE_CHECKING:
    import httpx

Json = Any
T = TypeVar("T")

DONE = "[DONE]"
"""Last event of streams in OpenAI's format."""

EARLIER = "(earlier messages are left out)"
"""Text of a first user turn, inserted if a history begins with the model and the provider rejects that."""

NOTHING = "(nothing)"
"""Text of an empty user turn, for providers that require a text."""


ENDS: dict[str, chat.StopReason] = {
    **dict.fromkeys(("stop", "end", "end_turn", "stop_sequence", "eos", "eos_token", "complete", "completed"), "end"),
    **dict.fromkeys(("pause_turn",), "end"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length", "error_limit"), "length"),
    **dict.fromkeys(("model_context_window_exceeded",), "length"),
    **dict.fromkeys(("tools", "tool_call", "tool_calls", "tool_use", "function_call"), "tools"),
    **dict.fromkeys(("content_filter", "content_filtered", "guardrail_intervened", "sensitive"), "refused"),
    **dict.fromkeys(("refusal", "safety", "recitation", "language", "blocklist", "prohibited_content"), "refused"),
    **dict.fromkeys(("spii", "image_safety", "image_prohibited_content", "image_recitation"), "refused"),
    **dict.fromkeys(("error_toxic", "model_armor"), "refused"),
    **dict.fromkeys(("error", "failed", "abort", "aborted", "cancelled", "incomplete", "load"), "failed"),
    **dict.fromkeys(("malformed_function_call", "unexpected_tool_call", "too_many_tool_calls"), "failed"),
    **dict.fromkeys(("malformed_response", "malformed_model_output"), "failed"),
    **dict.fromkeys(("malformed_tool_use", "insufficient_system_resource", "network_error", "timeout"), "failed"),
    **dict.fromkeys(("other", "unload"), "failed"),
}
"""Stop reasons by the providers' words, in lower case.

All providers share one table, since servers that copy a format mix in words of others. An unknown word counts as a
normal end; `check_reply` still rejects the reply if it is empty.
"""


Sign = Callable[["httpx.URL", bytes], Mapping[str, str]]
"""Returns the signature headers of a request with this URL and body."""


class Outgoing(msgspec.Struct, frozen=True):
    """Request in a provider's format, with the decoders of its answer.

    Attributes:
        path: path below the base URL.
        body: JSON.
        decode: returns the reply in a complete answer. Raises ModelError if it is not in the provider's format.
        reader: returns a new reader for a streamed answer.
        sign: returns the signature headers, from the URL and the body; None if the request is not signed.
    """

    path: str
    body: bytes
    decode: Callable[[bytes], chat.ChatReply]
    reader: Callable[[], StreamReader]
    sign: Sign | None = None


class Codec(Protocol):
    """Translator for one provider. `streams_tools` is True if a request with tools may be streamed."""

    streams_tools: bool

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers of every request. `key` is empty if none is needed."""
        ...

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> Outgoing:
        """Return `request` in the provider's format; `model` is the provider's name of the model.

        Raises:
            ModelError: the format cannot express a part of the request, for example a file type or a URL of an image.
        """
        ...


class ReplyBuilder:
    """Builder of a reply from its pieces, in any order that a provider sends them.

    The methods that return an iterator are generators: they change nothing until the caller iterates.

    Args:
        form: format of the stored reasoning blocks.

    Attributes:
        stop: normalised stop reason; None until `ends` is called.
        reason: the provider's word for it, if it is not a normal end.
        id: the provider's id of the reply.
        usage: token counts so far.
    """

    def __init__(self, form: str = "") -> None:
        self._form = form
        self._woven: ReasoningOrder | None = None  # created with the first reasoning block: most replies have none
        self.stop: chat.StopReason | None = None
        self.reason = ""
        self.id: Json = None
        self.usage = chat.TokenUsage()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _CallInPieces] = {}
        self._at: dict[int, list[int]] = {}  # for each index of the provider, the numbers of the calls opened there
        self._open = 0  # number of the call that received the last fragment

    def text(self, piece: str, *, woven: bool = True) -> Iterator[chat.Delta]:
        """Append text and yield it as a delta; an empty piece yields nothing.

        Args:
            woven: False if a stored block already contains the length of this text.
        """
        if piece:
            self._text.append(piece)
            if woven and self._woven is not None:
                self._woven.text(piece)
            yield chat.TextDelta(piece)

    def reasoning(self, piece: str) -> Iterator[chat.Delta]:
        """Append reasoning and yield it as a delta; an empty piece yields nothing."""
        if piece:
            self._reasoning.append(piece)
            yield chat.ReasoningDelta(piece)

    def thought(self, block: dict[str, Json]) -> None:
        """Store a reasoning block that the provider expects back, at the current position of the reply.

        The caller may still change `block` until `build`.
        """
        if self._woven is None:
            self._woven = ReasoningOrder(text=sum(map(len, self._text)), calls=len(self._calls))
        self._woven.block(block)

    def call(
        self, index: int, *, id: str = "", name: str = "", arguments: str = "", signature: str = ""
    ) -> Iterator[chat.Delta]:
        """Add a piece of tool call number `index` and yield it as a delta."""
        call = self._calls.get(index)
        if call is None:
            call = self._calls[index] = _CallInPieces()
            if self._woven is not None:
                self._woven.call()
        call.id = call.id or id
        call.name = call.name or name
        call.signature = call.signature or signature
        call.arguments.append(arguments)
        if id or name or arguments:
            yield chat.ToolCallDelta(index, id, name, arguments)

    def fragment(self, index: int, *, id: str = "", name: str = "", arguments: str = "") -> Iterator[chat.Delta]:
        """Add a fragment of a streamed tool call to its call and yield it as a delta.

        Servers disagree about all three keys. Some give every parallel call index 0, and some count fragments instead
        of calls. Some create a new id for each fragment or repeat the name in it. So no single key decides:

        - A known `id` selects its call.
        - Any other id or name opens a call, unless it fills a gap of the current call or repeats its values.
        - A fragment with neither belongs to the call of its index, else to the call of the last fragment.
        """
        number = self._number(index, id, name, arguments)
        call = self._calls.get(number)
        if call is None:
            self._at.setdefault(index, []).append(number)
        elif not id and not name and arguments.startswith("{") and "".join(call.arguments) == arguments:
            return  # some servers repeat the complete arguments after their pieces
        elif not id and not name and _opens_another(call, arguments):
            name, number = call.name if index in self._at else "", len(self._calls)
            self._at.setdefault(index, []).append(number)
        self._open = number
        yield from self.call(number, id=id, name=name, arguments=arguments)

    def _number(self, index: int, id: str, name: str, arguments: str) -> int:
        """Return the number of the fragment's call, which is an unused number if the fragment opens a call."""
        new, here = len(self._calls), self._at.get(index, ())
        known = next((number for number, call in self._calls.items() if id and call.id == id), None)
        if known is not None:
            call = self._calls[known]
            # Some servers give parallel calls the same id: a name at a new index, after whole arguments, is a new call.
            is_other = name and not here and (call.is_whole if call.arguments_begun else not arguments)
            return new if is_other else known
        current = self._open if self._open in here or not here else here[-1]
        if not id and not name:
            return current
        if not here:
            return new
        return current if _continues(self._calls[current], id, name, arguments) else new

    def ends(self, reason: str | None, *, refused: bool = False) -> None:
        """Record the provider's stop reason; an empty one changes nothing. `refused` is True if a filter caused it."""
        if reason:
            self.stop = "refused" if refused else ENDS.get(reason.lower(), "end")
            self.reason = "" if ENDS.get(reason.lower()) in ("end", "tools") else reason

    @property
    def calls(self) -> int:
        """Number of tool calls so far."""
        return len(self._calls)

    def within(self, block: dict[str, Json], text: int) -> None:
        """Assign the last `text` characters to the reasoning block `block`."""
        if self._woven is None:
            self._woven = ReasoningOrder(text=sum(map(len, self._text)), calls=len(self._calls))
        self._woven.within(block, text)

    def part_thinking(self) -> None:
        """Move reasoning from the text to `reasoning`, for servers that leave it there. Call it before `build`.

        The prompt templates of some models contain the opening `<think>`, so only the end tag is in the reply. Text
        that was already streamed remains streamed as text; only the final reply is corrected.
        """
        text = "".join(self._text)
        if CLOSE in text and self._woven is None and not any(self._reasoning):
            thought, _, answer = text.partition(CLOSE)
            begun = thought.lstrip().removeprefix(OPEN)
            # A quoted tag, or a pair of tags in the middle, is text about such tags and no reasoning.
            if OPEN not in begun and not thought.endswith(("`", '"', "'")):
                self._reasoning, self._text = [begun], [answer.lstrip()]

    def build(self) -> chat.ChatReply:
        """Return the reply so far. A call without an id gets `call_N`, since histories need one.

        If there are calls, a normal end (or none yet) becomes the stop reason `tools`.
        """
        calls = [self._calls[index] for index in sorted(self._calls)]
        tool_calls = tuple(
            tool_call(call.id or f"call_{number}", call.name, "".join(call.arguments), call.signature)
            for number, call in enumerate(calls)
        )
        stop: chat.StopReason = self.stop or "end"
        return chat.ChatReply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            thought=None if self._woven is None else self._woven.thought(self._form),
            tool_calls=tool_calls,
            stop="tools" if tool_calls and stop == "end" else stop,
            usage=self.usage,
            reason=self.reason,
            id=self.id if isinstance(self.id, str) else "",
        )


class _CallInPieces(msgspec.Struct):
    id: str = ""
    name: str = ""
    signature: str = ""
    arguments: list[str] = []

    @property
    def arguments_begun(self) -> bool:
        """True if any part of the arguments has arrived."""
        return any(self.arguments)

    @property
    def is_whole(self) -> bool:
        """True if the arguments so far are a JSON object."""
        # Without this check, decoding after every fragment would be quadratic in the length of the arguments.
        if not any(piece.rstrip().endswith("}") for piece in self.arguments):
            return False
        try:
            return isinstance(msgspec.json.decode("".join(self.arguments)), dict)
        except UNREADABLE:
            return False


def _continues(call: _CallInPieces, id: str, name: str, arguments: str) -> bool:
    """Return True if a fragment with a new id or a name, at the index of `call`, belongs to `call`."""
    if id and call.id:  # a server that makes a new id for each fragment
        repeats = name == call.name and call.arguments_begun if name else bool(call.name)
        return repeats and bool(arguments) and not call.is_whole
    if name and call.name:
        return name == call.name and (not arguments or not call.is_whole)
    return True


def _opens_another(call: _CallInPieces, arguments: str) -> bool:
    """Return True if arguments without id and name start a new object after the complete arguments of `call`."""
    return arguments.lstrip().startswith("{") and call.is_whole


class StreamReader:
    """Decoder of one streamed reply: call `feed` with bytes as they arrive, then `rest`, then `finish`.

    Subclasses implement `take`.

    Attributes:
        form: format of the stored reasoning blocks.
        lines: True if the stream consists of lines with one JSON object each.
        builder: the reply so far.
        ended: True if the stream has marked the reply as complete.
    """

    form = ""
    lines = False

    def __init__(self) -> None:
        self.builder = ReplyBuilder(self.form)
        self.ended = False
        self._events = SseParser()

    def feed(self, data: bytes) -> Iterator[chat.Delta]:
        """Yield the deltas that `data` completes. Raises ModelError or UpstreamError if the stream reports an error."""
        for event in self._events.feed(data):
            yield from self.take(event.data)

    def rest(self) -> Iterator[chat.Delta]:
        """Yield the deltas of a last event without its blank line, which some servers omit. Call it at a clean end.

        An incomplete event (neither JSON nor `[DONE]`) was cut off and is dropped. `finish` then misses the end.
        """
        for event in self._events.rest():
            if event.data.strip() == DONE or is_json(event.data):
                yield from self.take(event.data.strip())

    def take(self, data: str) -> Iterator[chat.Delta]:
        """Yield the deltas of text, reasoning and tool calls in one stream event.

        Raises:
            ModelError: the event is not in the provider's format.
            UpstreamError: the event reports an error.
        """
        raise NotImplementedError

    def finish(self) -> chat.ChatReply:
        """Return the reply after the end of the stream. Raises UpstreamError if the stream did not mark its end."""
        if not self.ended:
            raise UpstreamError("the connection ended before the reply was complete")
        return self.builder.build()


class StreamOrWhole:
    """Decoder of the answer to a streamed request, which some servers and gateways send as a whole.

    A whole answer is a JSON object, or a list of the stream's objects. It starts with a bracket; an event stream never
    does. The content type is not reliable, since gateways send streams with any type.

    Args:
        outgoing: the request.
        content_type: content type of the answer. It decides only for streams of JSON lines, where both answers start
            with a bracket.
    """

    def __init__(self, outgoing: Outgoing, content_type: str = "") -> None:
        self._outgoing = outgoing
        self.reader = outgoing.reader()
        is_json_type = content_type.partition(";")[0].strip() == "application/json"
        self.feed = self._begin if is_json_type or not self.reader.lines else self.reader.feed
        self._head = bytearray()
        self._whole: chat.ChatReply | None = None

    feed: Callable[[bytes], Iterator[chat.Delta]]
    """Yields the deltas that more bytes complete. Raises ModelError or UpstreamError if the stream reports an error."""

    def _begin(self, data: bytes) -> Iterator[chat.Delta]:
        """Buffer bytes until they show that the answer is a stream; a whole answer is buffered to its end."""
        self._head += data
        start = bytes(self._head[:_DECIDES]).removeprefix(_BYTE_ORDER_MARK).lstrip()
        if (start or len(self._head) > _DECIDES) and start[:1] not in (b"{", b"["):
            self.feed = self.reader.feed
            yield from self.feed(bytes(self._head))
            self._head.clear()

    def rest(self) -> Iterator[chat.Delta]:
        """Yield the remaining deltas at the end of the answer. Raises like `feed`."""
        body = bytes(self._head).removeprefix(_BYTE_ORDER_MARK).strip()
        if not body:
            yield from self.reader.rest()
        elif not is_json(body):
            if not self.reader.lines:
                raise UpstreamError("the connection ended before the response was complete")
            # Several lines of JSON under a content type of one document: decode them as the stream they are.
            yield from self.reader.feed(body + b"\n")
        elif body.startswith(b"["):
            for item in read(msgspec.json.decode, body):
                yield from self.reader.take(msgspec.json.encode(item).decode())
        else:
            self._whole = reply = self._outgoing.decode(body)
            if reply.reasoning:
                yield chat.ReasoningDelta(reply.reasoning)
            if reply.text:
                yield chat.TextDelta(reply.text)

    def finish(self) -> chat.ChatReply:
        """Return the reply. Raises UpstreamError if the end of a stream is missing."""
        return self.reader.finish() if self._whole is None else self._whole


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_DECIDES = 64
"""Number of leading white-space bytes after which an answer counts as a stream."""


def check_reply(reply: chat.ChatReply) -> None:
    """Raise an error if the reply contains no usable answer.

    Raises:
        ReplyFiltered: the provider's filter stopped the prompt or the reply.
        EmptyReply: the reply has neither text nor calls. It is transient unless the token limit was reached.
        UpstreamError: the provider reports that the reply is incomplete.
    """
    reason = f" ({reply.reason})" if reply.reason else ""
    is_empty = not reply.text.strip() and not reply.tool_calls
    if reply.stop == "refused" and (is_empty or reply.reason):
        raise ReplyFiltered(f"{reply.model}: the provider's content filter stopped the request or the reply{reason}")
    if is_empty:
        if reply.stop == "length":
            why = f": the token limit was reached before the answer{reason}; raise `max_tokens`"
        elif reply.reasoning.strip():
            why = f"{reason}: the model produced reasoning and no answer"
        else:
            why = reason
        error = EmptyReply(f"{reply.model} produced no output{why}")
        error.transient = reply.stop != "length"
        raise error
    if reply.stop == "failed":
        raise UpstreamError(f"{reply.model}: the reply is incomplete{reason}")


def caches(cache: Cache, request: chat.ChatRequest) -> bool:
    """Return True if the prompt should be cached: never with `off`, and with `auto` if a next request is likely.

    These are requests with tools or with an earlier reply: writing a cache costs extra, which only a second request
    recovers.
    """
    if cache == "auto":
        return bool(request.tools) or any(isinstance(turn, chat.AssistantTurn) for turn in request.messages)
    return cache != "off"


def tool_call(id: str, name: str, arguments: str, signature: str = "") -> chat.ToolCall:
    """Return a call from arguments as text, which may be JSON inside a JSON string.

    Empty text and `null` mean `{}`. Text that is not a JSON object becomes `malformed`.
    """
    if not arguments.strip():
        return chat.ToolCall(id=id, name=name, signature=signature)
    try:
        read = decode_mended(msgspec.json.decode, arguments)
        if isinstance(read, str):  # encoded twice
            read = decode_mended(msgspec.json.decode, read) if read.strip() else None
        read = {} if read is None else read
    except UNREADABLE:
        read = None
    if isinstance(read, dict):
        return chat.ToolCall(id=id, name=name, arguments=read, signature=signature)
    return chat.ToolCall(id=id, name=name, malformed=arguments, signature=signature)


def arguments_text(arguments: Json) -> str:
    """Return the arguments of a call as text. Servers send the text, the object itself, or null."""
    if not arguments:
        return ""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def arguments_sent(call: chat.ToolCall) -> str:
    """Return the arguments of a past call as JSON text, always an object: prompt templates of models parse it.

    Malformed arguments are sent as `{"malformed": text}`.
    """
    return msgspec.json.encode({"malformed": call.malformed} if call.malformed else call.arguments).decode()


def data_url(part: chat.ImagePart | chat.FilePart) -> str:
    """Return an image or file of a message as a `data:` URL."""
    return f"data:{media_type_of(part)};base64,{base64_of(part)}"


def media_type_of(part: chat.ImagePart | chat.FilePart) -> str:
    """Return the media type. The bytes of an image take precedence, since its file name may have a wrong suffix."""
    return image_type(part.data) or part.media_type if isinstance(part, chat.ImagePart) else part.media_type


def base64_of(part: chat.ImagePart | chat.FilePart) -> str:
    """Return the bytes of an image or file in base64."""
    return base64.b64encode(part.data).decode("ascii")


def is_text(part: chat.FilePart) -> bool:
    """Return True if the file is text, which every provider accepts as part of a prompt."""
    kind = part.media_type
    textual = kind.startswith("text/") or kind.partition("+")[2] in ("json", "xml", "yaml")
    return textual or kind in ("application/json", "application/xml", "application/yaml")


def file_as_text(part: chat.FilePart) -> str:
    """Return a text file as prompt text, inside a tag with its name. Raises ModelError for other types."""
    if not is_text(part):
        raise ModelError(
            f"this provider does not accept {part.media_type} files: '{part.name}'; convert it to text first"
        )
    text = part.data.decode("utf-8", errors="replace")
    return f'<file name="{part.name}">\n{text}\n</file>'


def result_apart(turn: chat.ToolTurn) -> tuple[str, tuple[chat.ImagePart | chat.FilePart, ...]]:
    """Return the text of a tool's result, and its other parts, for providers that accept only text as a result."""
    if isinstance(turn.content, str):
        return turn.content, ()
    apart = tuple(part for part in chat.parts_of(turn.content) if not isinstance(part, chat.TextPart))
    names = [f"[{name_of(part)}: see below]" for part in apart]
    return "\n".join(text for text in (chat.text_of(turn.content), *names) if text), apart


def without_files(content: chat.Content) -> chat.Content:
    """Return the content of a tool result with files replaced by their names, for providers that accept no files."""
    if isinstance(content, str):
        return content
    return tuple(chat.TextPart(f"[{name_of(part)}]") if isinstance(part, chat.FilePart) else part for part in content)


def blocks(content: chat.Content, block: Callable[[chat.Part], Json]) -> Json:
    """Return the content of a turn: a string unchanged, parts as a list of blocks. Blank texts are omitted."""
    if isinstance(content, str):
        return content if content.strip() else ""
    return [block(part) for part in content if not is_blank(part)]


def is_blank(part: chat.Part) -> bool:
    """Return True for a text of whitespace alone: some providers refuse a request with such a block."""
    return isinstance(part, chat.TextPart) and not part.text.strip()


def name_of(part: chat.ImagePart | chat.FilePart) -> str:
    """Return a short description of the part, for a prompt."""
    return f"file {part.name}" if isinstance(part, chat.FilePart) else f"image, {part.media_type}"


def bearer(key: str) -> dict[str, str]:
    """Return the authorization header of a bearer token; empty if there is no key."""
    return {"authorization": f"Bearer {key}"} if key else {}


def given(**options: Json) -> dict[str, Json]:
    """Return the options of a request that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def read(decode: Callable[[bytes | str], T], data: bytes | str) -> T:
    """Decode an answer, or a piece of one. Raises ModelError if it is not in the provider's format.

    If the first attempt fails, decode a repaired copy. The repair removes nulls, which some servers send for absent
    lists and objects. It also converts token counts that are text or fractions, and drops counts that are not numbers.
    """
    try:  # the repairs cost further passes in Python: valid answers never pay for them
        return decode(data)
    except UNREADABLE as error:
        with contextlib.suppress(*UNREADABLE):
            return decode_mended(decode, data)
        with contextlib.suppress(*UNREADABLE):
            return decode_mended(decode, msgspec.json.encode(_mended(decode_mended(msgspec.json.decode, data))))
        begins = data[:200] if isinstance(data, str) else data[:200].decode("utf-8", errors="replace")
        raise ModelError(f"the response is not in the provider's format ({error}); it begins {begins!r}") from error


_OPAQUE = frozenset(("arguments", "args", "input"))
"""Keys of tool arguments, which are not repaired: a null in them has a meaning."""


def _mended(value: Json, key: str = "") -> Json:
    """Return a value without nulls, and with whole numbers as token counts."""
    if key in _OPAQUE:
        return value
    if _USAGE.search(key) and not isinstance(value, dict):
        return None
    if _COUNT.search(key):
        return _count(value)
    if isinstance(value, dict):
        mended = {name: _mended(each, name) for name, each in value.items() if each is not None}
        return {name: each for name, each in mended.items() if each is not None}
    if isinstance(value, list):
        return [_mended(each) for each in value if each is not None]
    if isinstance(value, int | float) and not isinstance(value, bool) and key in _IDS:
        return str(value)
    return value


_IDS = frozenset(("id", "call_id", "toolUseId", "finish_reason", "stop_reason"))
"""Keys with text values, for which some servers send numbers."""

_COUNT = re.compile(r"(_tokens|Tokens|_count|Count|^(output_)?index)$")
_USAGE = re.compile(r"^(usage|usageMetadata)$|[tT]okens_?[dD]etails$")


def _count(value: Json) -> int | None:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            count = value if isinstance(value, int) else int(float(value))
            return count if abs(count) < 1 << 53 else None  # no real count is this high: such a number is garbage
    return None


def is_json(text: str | bytes) -> bool:
    """Return True if a text is a complete JSON document."""
    try:
        decode_mended(msgspec.json.decode, text)
    except UNREADABLE:
        return False
    return True


def error_text(error: Json) -> str:
    """Return the message of a provider's error object, or the whole error as text if it has none."""
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def with_preface(request: chat.ChatRequest, system: str) -> tuple[object, ...]:
    """Return the messages with the system prompt before the text of the first user turn.

    Without a user turn, the system prompt becomes one at the start.
    """
    turns = list(request.messages)
    for position, turn in enumerate(turns):
        if isinstance(turn, chat.UserTurn):
            if isinstance(turn.content, str):
                turns[position] = chat.UserTurn(f"{system}\n\n{turn.content}")
            else:
                turns[position] = chat.UserTurn((*chat.parts_of(system), *turn.content))
            return tuple(turns)
    return (chat.UserTurn(system), *turns)


_COMBINATORS = ("allOf", "anyOf", "oneOf")

_SCHEMAS = frozenset(("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"))
_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAPS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_DEEPEST = 60
"""Levels that are adapted; deeper parts are sent unchanged."""

_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))

_KNOWN: dict[int, tuple[dict[str, Json], dict[str, Json]]] = {}
"""Cache by `id` of the schema. The value includes the schema itself, so that its id is not reused."""
_MOST_KNOWN = 4096


def function_of(tool: Tool) -> Json:
    """Return the declaration of a tool in OpenAI's format, which most providers use."""
    function = {"name": tool.name, "description": tool.description, "parameters": declared(tool.parameters)}
    return {"type": "function", "function": function}


def declared(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of a tool's arguments in a form that every provider accepts.

    The result is cached: the same object for the same object. It must not be modified.
    """
    known = _KNOWN.get(id(schema))
    if known is None or known[0] is not schema:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        known = _KNOWN[id(schema)] = (schema, _adapted(folded(schema), 0))
    return known[1]


def folded(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema without combinators at its root: the properties of all branches become its own.

    A property is required if the root, any part of `allOf`, or every branch of another combinator requires it. A root
    that refers to one of its parts becomes that part.
    """
    if isinstance(schema.get("$ref"), str) and isinstance(part := _resolved(schema, schema), dict):
        own = {key: value for key, value in schema.items() if key != "$ref" and value}
        if part is not schema and "$ref" not in part:
            schema = {
                **part,
                **own,
                "properties": {**_object(part.get("properties")), **_object(own.get("properties"))},
            }
    if not any(isinstance(schema.get(key), list) for key in _COMBINATORS):
        return schema
    properties: dict[str, Json] = dict(_object(schema.get("properties")))
    required = list(_names(schema.get("required")))
    for key in _COMBINATORS:
        branches = schema.get(key)
        if not isinstance(branches, list):
            continue
        parts = [folded(part) for part in (_resolved(branch, schema) for branch in branches) if isinstance(part, dict)]
        for part in parts:
            for name, each in _object(part.get("properties")).items():
                properties.setdefault(name, each)
        wanted = [_names(part.get("required")) for part in parts]
        if key == "allOf":
            required += [name for names in wanted for name in names]
        elif wanted:
            required += [name for name in wanted[0] if all(name in names for names in wanted)]
    merged = {key: value for key, value in schema.items() if key not in _COMBINATORS}
    merged |= {"type": "object", "properties": properties}
    return {**merged, "required": list(dict.fromkeys(required))} if required else merged


def _adapted(schema: Json, depth: int) -> Json:
    """Return a schema and its parts in the form of JSON Schema 2020-12, with `items` for every array."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return schema
    found: dict[str, Json] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            found[key] = {name: _adapted(each, depth + 1) for name, each in value.items()}
        elif key in _LISTS and isinstance(value, list):
            found[key] = [_adapted(each, depth + 1) for each in value]
        elif key in _SCHEMAS and isinstance(value, dict):
            found[key] = _adapted(value, depth + 1)
        elif value is not None or key in ("const", "default"):
            found[key] = value
    _mend(found, depth)
    return found


def _mend(schema: dict[str, Json], depth: int) -> None:
    if isinstance(schema.get("items"), list):  # a tuple, up to draft 2019-09
        schema["prefixItems"] = [_adapted(each, depth + 1) for each in schema["items"]]
        schema["items"] = schema.pop("additionalItems", {})
    for exclusive, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool):  # draft 4
            bound = schema.get(plain)
            if schema.pop(exclusive) and bound is not None:
                schema[exclusive] = schema.pop(plain)
    if not isinstance(schema.get("required", []), list):  # draft 3, for one property
        del schema["required"]
    kinds = schema.get("type")
    if isinstance(kinds, str) and kinds not in _TYPES:  # "any" and the like
        del schema["type"]
    is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    if is_array and not isinstance(schema.get("items"), dict | bool):
        schema["items"] = {}


def _resolved(schema: Json, root: dict[str, Json]) -> Json:
    """Return the schema that a reference within `root` names, or `schema` itself if it is not a reference."""
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: Json = root
    for key in reference[2:].split("/"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if found is not root else None


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _names(value: Json) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


# --- call ids


MOST_OF_ID = 40
"""Maximum length of an id that every provider accepts, except Mistral."""

_FITS = re.compile(rf"(?:[A-Za-z0-9_-]{{1,{MOST_OF_ID}}}\n)*")
_FITS_MISTRAL = re.compile(r"(?:[A-Za-z0-9]{9}\n)*")
_MISTRAL = re.compile(r"mi[sx]tral|ministral|pixtral|codestral|devstral|magistral", re.IGNORECASE)


def uses_mistral_ids(model: str, base: str = "") -> bool:
    """Return True if the model's name is one of Mistral's, at any server, or the base URL is Mistral's own."""
    return _MISTRAL.search(model) is not None or "mistral.ai" in base


def with_valid_ids(turns: Sequence[Turn], *, mistral: bool = False) -> Sequence[Turn]:
    """Return the turns with valid, unique ids; the same object if they are valid already.

    Results are matched to calls by their order: several calls with the same id in a turn take the results in turn.
    """
    ids = [call.id for turn in turns if type(turn) is AssistantTurn for call in turn.tool_calls]
    if not ids:
        return turns
    pattern = _FITS_MISTRAL if mistral else _FITS
    if len(set(ids)) == len(ids) and pattern.fullmatch("\n".join(ids) + "\n"):
        return turns
    taken: set[str] = set()
    waiting: dict[str, deque[str]] = {}
    found: list[Turn] = []
    for turn in turns:
        if isinstance(turn, AssistantTurn) and turn.tool_calls:
            waiting = {}
            calls = []
            for call in turn.tool_calls:
                new = _new(call.id, pattern, taken, mistral)
                taken.add(new)
                waiting.setdefault(call.id, deque()).append(new)
                calls.append(call if new == call.id else msgspec.structs.replace(call, id=new))
            found.append(msgspec.structs.replace(turn, tool_calls=tuple(calls)))
        elif isinstance(turn, ToolTurn) and (queue := waiting.get(turn.call)):
            new = queue.popleft() if len(queue) > 1 else queue[0]  # further results belong to the last call
            found.append(msgspec.structs.replace(turn, call=new))
        else:
            found.append(turn)
    return found


def _new(id: str, pattern: re.Pattern[str], taken: set[str], mistral: bool) -> str:
    """Return a valid id that is not taken: `id` itself if possible."""
    if id and id not in taken and pattern.fullmatch(id + "\n"):
        return id
    number = 0
    while True:
        digest = blake2b(f"{number}:{id}".encode(errors="surrogatepass"), digest_size=16).hexdigest()
        new = digest[:9] if mistral else f"call_{digest[:24]}"
        if new not in taken:
            return new
        number += 1
