"""The interface of the providers' codecs, and what they share.

A codec is pure: a request goes in and a path with a JSON body comes out; bytes of an answer go in and a
`ChatReply` comes out. No codec opens a connection, so each is tested by its bytes alone.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from ....protocol import chat
from ....protocol.errors import EmptyReply, ModelError, ReplyFiltered, UpstreamError
from ....protocol.json_values import UNREADABLE, decode_mended
from ....protocol.settings.model import Cache
from ...io.encodings import image_type
from ...io.http.sse import SseParser
from .reasoning.tags import CLOSE, OPEN
from .reasoning.woven import Weaver
from .tool_schemas import declared

if TYPE_CHECKING:
    import httpx

Json = Any
T = TypeVar("T")

EARLIER = "(earlier messages are left out)"
"""Said by the user where a history begins with the model, and the provider wants the user to begin."""

NOTHING = "(nothing)"
"""Said by the user who said nothing, where the provider wants a text."""


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
"""The providers' words for why a reply ended, in lower case. They share one table, since servers that copy a format
mix in words of others. Small servers have words of their own: an unknown one is an end if the reply says something."""


Sign = Callable[["httpx.URL", bytes], Mapping[str, str]]
"""Makes the headers of a signature."""


class Outgoing(msgspec.Struct, frozen=True):
    """A request in a provider's format, and how its answer is read.

    Attributes:
        path: below the base URL.
        body: JSON.
        decode: the reply in a complete answer. Raises ModelError if it makes no sense.
        reader: makes a reader for a streamed answer.
        sign: more headers, made of the URL and the body; None where there are none.
    """

    path: str
    body: bytes
    decode: Callable[[bytes], chat.ChatReply]
    reader: Callable[[], StreamReader]
    sign: Sign | None = None


class Codec(Protocol):
    """Translates for one provider. `streams_tools`: whether a reply may be streamed when tools are offered."""

    streams_tools: bool

    def headers(self, key: str) -> dict[str, str]:
        """What every request carries; `key` is empty where none is needed."""
        ...

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> Outgoing:
        """`request` for the model that the provider calls `model`."""
        ...


class ReplyBuilder:
    """Puts a reply together from its pieces, in whatever order a provider sends them.

    Args:
        form: the format that blocks of thinking are in.
    """

    def __init__(self, form: str = "") -> None:
        self._form = form
        self._woven: Weaver | None = None  # until there is something to keep
        self.stop: chat.StopReason | None = None
        self.reason = ""
        self.usage = chat.TokenUsage()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _CallInPieces] = {}
        self._at: dict[int, list[int]] = {}  # numbers of the calls that were opened at each index of the provider's
        self._open = 0

    def text(self, piece: str, *, woven: bool = True) -> Iterator[chat.Delta]:
        """More text; the empty string is nothing. `woven`: it is outside of all blocks of thinking."""
        if piece:
            self._text.append(piece)
            if woven and self._woven is not None:
                self._woven.text(piece)
            yield chat.TextDelta(piece)

    def reasoning(self, piece: str) -> Iterator[chat.Delta]:
        """More reasoning."""
        if piece:
            self._reasoning.append(piece)
            yield chat.ReasoningDelta(piece)

    def thought(self, block: dict[str, Json]) -> None:
        """A block of thinking that the provider wants to see again, at this place. It may be filled until the end."""
        if self._woven is None:
            self._woven = Weaver(text=sum(map(len, self._text)), calls=len(self._calls))
        self._woven.block(block)

    def call(
        self, index: int, *, id: str = "", name: str = "", arguments: str = "", signature: str = ""
    ) -> Iterator[chat.Delta]:
        """More of tool call number `index`."""
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
        """A fragment of a streamed tool call, added to the call that it belongs to.

        Servers disagree about all three keys: some give every parallel call index 0, some count fragments in place of
        calls, some make a new id for each fragment or repeat the name in it. So no key alone decides. A known `id` is
        that call. Any other id or name opens a call, unless it fills a gap of the current one or repeats what that has.
        A fragment with neither belongs to the call of its index if there is one, else to the call that was open last.
        """
        number = self._number(index, id, name, arguments)
        call = self._calls.get(number)
        if call is None:
            self._at.setdefault(index, []).append(number)
        elif not id and not name and arguments.startswith("{") and "".join(call.arguments) == arguments:
            return  # the whole once more, behind its pieces
        elif not id and not name and _opens_another(call, arguments):
            name, number = call.name if index in self._at else "", len(self._calls)
            self._at.setdefault(index, []).append(number)
        self._open = number
        yield from self.call(number, id=id, name=name, arguments=arguments)

    def _number(self, index: int, id: str, name: str, arguments: str) -> int:
        """Number of the call that a fragment belongs to; that of no call yet if it opens one."""
        new, here = len(self._calls), self._at.get(index, ())
        known = next((number for number, call in self._calls.items() if id and call.id == id), None)
        if known is not None:
            call = self._calls[known]
            is_other = name and not here and (call.is_whole if call.arguments_begun else not arguments)
            return new if is_other else known
        current = self._open if self._open in here or not here else here[-1]
        if not id and not name:
            return current
        if not here:
            return new
        return current if _continues(self._calls[current], id, name, arguments) else new

    def ends(self, reason: str | None, *, refused: bool = False) -> None:
        """Note why the reply ended, in the provider's word; `refused` if the word is one for a filter."""
        if reason:
            self.stop = "refused" if refused else ENDS.get(reason.lower(), "end")
            self.reason = "" if ENDS.get(reason.lower()) in ("end", "tools") else reason

    @property
    def calls(self) -> int:
        """How many calls there are so far."""
        return len(self._calls)

    def within(self, block: dict[str, Json], text: int) -> None:
        """The last `text` characters belong into that block."""
        if self._woven is None:
            self._woven = Weaver(text=sum(map(len, self._text)), calls=len(self._calls))
        self._woven.within(block, text)

    def part_thinking(self) -> None:
        """Part thinking from the text, of servers that leave it there. Called at the end, before `build`.

        The templates of some models open `<think>` themselves, so only its end is in the reply. What had been streamed
        as text by then stays streamed; the reply is right.
        """
        text = "".join(self._text)
        if CLOSE in text and self._woven is None and not any(self._reasoning):
            thought, _, answer = text.partition(CLOSE)
            begun = thought.lstrip().removeprefix(OPEN)
            if OPEN not in begun and not thought.endswith(("`", '"', "'")):
                self._reasoning, self._text = [begun], [answer.lstrip()]

    def build(self) -> chat.ChatReply:
        """The whole reply so far."""
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
        )


class _CallInPieces(msgspec.Struct):
    id: str = ""
    name: str = ""
    signature: str = ""
    arguments: list[str] = []

    @property
    def arguments_begun(self) -> bool:
        """True if any of the arguments have come."""
        return any(self.arguments)

    @property
    def is_whole(self) -> bool:
        """True if the arguments so far are a JSON object."""
        if not any(piece.rstrip().endswith("}") for piece in self.arguments):
            return False
        try:
            return isinstance(msgspec.json.decode("".join(self.arguments)), dict)
        except UNREADABLE:
            return False


def _continues(call: _CallInPieces, id: str, name: str, arguments: str) -> bool:
    """Return True if a fragment with a new id or a name, at the index of `call`, is one of `call`."""
    if id and call.id:  # a server that makes a new id for each fragment
        repeats = name == call.name and call.arguments_begun if name else bool(call.name)
        return repeats and bool(arguments) and not call.is_whole
    if name and call.name:
        return name == call.name and (not arguments or not call.is_whole)
    return True


def _opens_another(call: _CallInPieces, arguments: str) -> bool:
    """Return True if arguments without id and name begin where those of `call` are whole."""
    return arguments.lstrip().startswith("{") and call.is_whole


class StreamReader:
    """Reads one streamed reply: feed it bytes as they come, then ask for the whole.

    Attributes:
        form: the format of thinking that is kept.
        builder: the reply so far.
        ended: whether the stream has said that the reply is complete.
    """

    form = ""

    def __init__(self) -> None:
        self.builder = ReplyBuilder(self.form)
        self.ended = False
        self._events = SseParser()

    def feed(self, data: bytes) -> Iterator[chat.Delta]:
        """The pieces that `data` completes. Raises ModelError or UpstreamError if the stream reports one."""
        for event in self._events.feed(data):
            yield from self.take(event.data)

    def take(self, data: str) -> Iterator[chat.Delta]:
        """The pieces in the data of one event."""
        raise NotImplementedError

    def finish(self) -> chat.ChatReply:
        """The whole reply, at the end of the stream. Raises UpstreamError if its end is missing."""
        if not self.ended:
            raise UpstreamError("the stream broke off before the reply was complete")
        return self.builder.build()


def check_reply(reply: chat.ChatReply) -> None:
    """Raise the error that a reply stands for, if it is no answer.

    Raises:
        ReplyFiltered: a filter of the provider's has stopped the prompt or the reply.
        EmptyReply: it has neither text nor calls. Another try may help, unless its bound of tokens was reached.
        UpstreamError: it did not come to its end.
    """
    reason = f" ({reply.reason})" if reply.reason else ""
    is_empty = not reply.text.strip() and not reply.tool_calls
    if reply.stop == "refused" and (is_empty or reply.reason):
        raise ReplyFiltered(f"{reply.model}: the provider's filter has stopped the request or the reply{reason}")
    if is_empty:
        if reply.stop == "length":
            why = f": the bound of its tokens was reached before its answer{reason}, see `max_tokens`"
        elif reply.reasoning.strip():
            why = f"{reason}: it has thought, and given no answer"
        else:
            why = reason
        error = EmptyReply(f"{reply.model} produced no output{why}")
        error.transient = reply.stop != "length"
        raise error
    if reply.stop == "failed":
        raise UpstreamError(f"{reply.model}: the reply did not come to its end{reason}")


def caches(cache: Cache, request: chat.ChatRequest) -> bool:
    """Whether it is worth it: `auto` means requests that another one is likely to follow."""
    if cache == "auto":
        return bool(request.tools) or any(isinstance(turn, chat.AssistantTurn) for turn in request.messages)
    return cache != "off"


def tool_call(id: str, name: str, arguments: str, signature: str = "") -> chat.ToolCall:
    """A call whose arguments came as text; `null` is `{}`, and text that is no JSON object is kept as `malformed`."""
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
    """The arguments of a call as text: servers send the text, the object itself, or null."""
    if not arguments:
        return ""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def data_url(part: chat.ImagePart | chat.FilePart) -> str:
    """The part's bytes as a data URL."""
    return f"data:{media_type_of(part)};base64,{base64_of(part)}"


def media_type_of(part: chat.ImagePart | chat.FilePart) -> str:
    """The media type by the part's bytes, where they tell; a file may have the name of another kind of image."""
    return image_type(part.data) or part.media_type if isinstance(part, chat.ImagePart) else part.media_type


def base64_of(part: chat.ImagePart | chat.FilePart) -> str:
    """The part's bytes in base64."""
    return base64.b64encode(part.data).decode("ascii")


def is_text(part: chat.FilePart) -> bool:
    """Whether it is a file that reaches every provider."""
    kind = part.media_type
    textual = kind.startswith("text/") or kind.partition("+")[2] in ("json", "xml", "yaml")
    return textual or kind in ("application/json", "application/xml", "application/yaml")


def file_as_text(part: chat.FilePart) -> str:
    """A text file as the model reads it, with its name above. Raises ModelError for other types."""
    if not is_text(part):
        raise ModelError(f"this provider takes no {part.media_type} files: '{part.name}'; convert it to text first")
    text = part.data.decode("utf-8", errors="replace")
    return f'<file name="{part.name}">\n{text}\n</file>'


def result_apart(turn: chat.ToolTurn) -> tuple[str, tuple[chat.ImagePart | chat.FilePart, ...]]:
    """The text of a tool's result, and what is no text in it, for providers that take only text as a result."""
    apart = tuple(part for part in chat.parts_of(turn.content) if not isinstance(part, chat.TextPart))
    names = [f"[{name_of(part)}: see below]" for part in apart]
    return "\n".join(text for text in (chat.text_of(turn.content), *names) if text), apart


def without_files(content: chat.Content) -> chat.Content:
    """The content of a result with files by their names, for providers that take none."""
    if isinstance(content, str):
        return content
    return tuple(chat.TextPart(f"[{name_of(part)}]") if isinstance(part, chat.FilePart) else part for part in content)


def blocks(content: chat.Content, block: Callable[[chat.Part], Json]) -> Json:
    """The content of a turn where a text is a text, and parts are a list of blocks. Blank texts are left out."""
    if isinstance(content, str):
        return content if content.strip() else ""
    return [block(part) for part in content if not is_blank(part)]


def is_blank(part: chat.Part) -> bool:
    """Return True for a text of whitespace alone: some providers refuse a request with such a block."""
    return isinstance(part, chat.TextPart) and not part.text.strip()


def name_of(part: chat.ImagePart | chat.FilePart) -> str:
    """What it is, in words."""
    return f"file {part.name}" if isinstance(part, chat.FilePart) else f"image, {part.media_type}"


def bearer(key: str) -> dict[str, str]:
    """The header with a bearer token, or nothing where there is none."""
    return {"authorization": f"Bearer {key}"} if key else {}


def given(**options: Json) -> dict[str, Json]:
    """The options that have a value."""
    return {name: value for name, value in options.items() if value is not None}


def function_of(tool: chat.Tool) -> Json:
    """A tool as most providers want it declared."""
    function = {"name": tool.name, "description": tool.description, "parameters": declared(tool.parameters)}
    return {"type": "function", "function": function}


def read(decode: Callable[[bytes | str], T], data: bytes | str) -> T:
    """What an answer, or a piece of one, says; raises ModelError if it is not in the provider's format.

    Where it is not, it is read once more without its nulls, which some servers send for lists and objects that are
    absent, and with token counts that came as text or with a fraction.
    """
    try:
        return decode_mended(decode, data)
    except UNREADABLE as error:
        with contextlib.suppress(*UNREADABLE):
            return decode_mended(decode, msgspec.json.encode(_mended(decode_mended(msgspec.json.decode, data))))
        begins = data[:200] if isinstance(data, str) else data[:200].decode("utf-8", errors="replace")
        raise ModelError(f"the answer is not in the provider's format ({error}); it begins {begins!r}") from error


_OPAQUE = frozenset(("arguments", "args", "input"))
"""Keys whose values are the tools' own: a null in them has a meaning."""


def _mended(value: Json, key: str = "") -> Json:
    """A value without nulls, and with whole numbers for token counts."""
    if key in _OPAQUE:
        return value
    if isinstance(value, dict):
        return {name: _mended(each, name) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_mended(each) for each in value if each is not None]
    if isinstance(value, float | str) and _COUNT.search(key):
        with contextlib.suppress(ValueError, OverflowError):
            return int(float(value))
    return value


_COUNT = re.compile(r"(_tokens|Tokens|_count|Count)$")


def error_text(error: Json) -> str:
    """What an error of a provider's says."""
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def with_preface(request: chat.ChatRequest, system: str) -> tuple[object, ...]:
    """The messages with the system prompt at the head of the first user turn."""
    turns = list(request.messages)
    for position, turn in enumerate(turns):
        if isinstance(turn, chat.UserTurn):
            if isinstance(turn.content, str):
                turns[position] = chat.UserTurn(f"{system}\n\n{turn.content}")
            else:
                turns[position] = chat.UserTurn((*chat.parts_of(system), *turn.content))
            return tuple(turns)
    return (chat.UserTurn(system), *turns)
