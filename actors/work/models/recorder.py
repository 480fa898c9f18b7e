"""Keeps what the models of a run saw and said: the request of each call as it was asked, and its reply.

A run has a recorder or none (`Hooks.recorder`), and the gateway hands it to each `Call`, which asks twice per try and
once per end whether there is one: a run without a recorder pays for three look-ups of an attribute.

What is kept is lines of JSON, in the order in which things happen:

    {"line":"piece","number":3,"value":{"role":"user","content":"..."}}     a turn, a tool, or a system prompt
    {"line":"asked","number":2,"actor":"/run-1/lead","messages":[[1,3],[7,7]],...}
    {"line":"sent","number":2,"body":[[8,8],[3,3],[9,12]]}                  the same as it went to the provider
    {"line":"answered","number":2,"text":"...","seconds":1.2,...}

A conversation repeats itself with each request, so whole requests would grow with its square. Here each turn, each
tool and each system prompt is a piece, written once; a request names its pieces, as ranges of their numbers. Which
turns are new is found without looking into them: those that are the same objects as in the actor's last request have
their numbers already. Others (a conversation that was made anew, another agent with the same tools) are found by a
digest of their JSON. So the work in the event loop is in proportion to what is new, and less than a codec does, which
encodes the whole conversation each time; writing is the business of the file's own thread. Thirty turns of 100 kB take
3.0 MB, and as much again for the bodies.

The body of the request is kept as well, as its provider's codec has made it, cut behind each object that is an item of
a list: in all formats that is between turns and between tools. So it repeats itself as the conversation does. Known
pieces of it have to be found by their digests, all of them each time, which is why a body beyond `MOST_OF_BODY` is not
kept.

Bounds: a piece beyond `LONGEST` loses the middles of its long texts, bytes of images and files are only counted, and
of a request whose new pieces go beyond `MOST_OF_CALL` the oldest are left out. A file beyond `MOST_OF_FILE` is
followed by another, which begins without any pieces, so that it can be read alone; the file before the last is removed
then. So the oldest calls go first, and the numbers of those that are left tell it.

Secrets: each line passes `redact` before it is written, and whatever is cut passes it before the cut, since half a
secret is not found. Headers, which hold the keys, never get here.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from ....protocol.chat import (
    ChatReply,
    ChatRequest,
    FilePart,
    ImagePart,
    TokenUsage,
    ToolCall,
    ToolTurn,
    Turn,
    UserTurn,
)
from ....protocol.errors import CallboardError
from ....protocol.model_calls import FailedTry
from .codec import is_text

LONGEST = 1024 * 1024
"""Bytes of a piece, as JSON."""

LONGEST_TEXT = 64 * 1024
"""Characters of a text in a piece that is longer; the first and the last half of them are kept."""

MOST_OF_CALL = 4 * 1024 * 1024
"""Bytes that a request may add."""

MOST_OF_BODY = 1024 * 1024
"""Bytes of a body that is kept. It takes five milliseconds of the event loop."""

MOST_OF_FILE = 8 * 1024 * 1024
"""Bytes after which another file begins. There are two at a time."""

MOST_ACTORS = 256
"""Actors whose last request is remembered."""

MOST_OPEN = 10_000
"""Calls without an end that are remembered: those that were cancelled get none."""

Ranges = list[tuple[int, int]]
"""Numbers of pieces: the first and the last of each row of them."""

_PARAMETERS = (
    *("tool_choice", "response_schema", "temperature", "top_p", "max_tokens", "reasoning_effort", "thinking_budget"),
    *("stop", "extra"),
)
_DEFAULTS = ChatRequest(messages=())


class PieceLine(msgspec.Struct, frozen=True, tag="piece", tag_field="line"):
    """A turn, a tool or a system prompt. Numbers begin with 1 in each file."""

    number: int
    value: msgspec.Raw


class AskedLine(msgspec.Struct, frozen=True, kw_only=True, tag="asked", tag_field="line"):
    """A request went out. `system` is the number of a piece, 0 for none."""

    number: int
    id: str
    time: datetime
    actor: str
    model: str
    system: int
    messages: Ranges
    tools: Ranges
    parameters: dict[str, Any]


class SentLine(msgspec.Struct, frozen=True, tag="sent", tag_field="line"):
    """The body of a request: pieces, one after another."""

    number: int
    body: Ranges


class AnsweredLine(msgspec.Struct, frozen=True, kw_only=True, tag="answered", tag_field="line", omit_defaults=True):
    """A call has ended: with a reply, or with an `error`."""

    number: int
    seconds: float
    error: str = ""
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: str = ""
    usage: TokenUsage = TokenUsage()
    cost: float | None = None
    failures: tuple[FailedTry, ...] = ()


class CallFile(Protocol):
    """Where lines go."""

    def append(self, line: bytes) -> None:
        """Write a line; never waits."""

    def end(self) -> None:
        """There are no more."""


class Recorder:
    """See the module. All methods are the event loop's, and never wait.

    Args:
        open_file: gives the file of a number, from 1; called when there is something to write.
        redact: takes secrets out of an encoded line.
        files, calls: how many there are already, of a run that goes on.
    """

    def __init__(
        self, open_file: Callable[[int], CallFile], redact: Callable[[bytes], bytes], *, files: int = 0, calls: int = 0
    ) -> None:
        self._open_file = open_file
        self._redact = redact
        self._file: CallFile | None = None
        self._files, self._calls = files, calls
        self._size = self._pieces = 0
        self._known: dict[bytes, int] = {}
        self._last: OrderedDict[str, _Last] = OrderedDict()
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def asked(self, id: str, actor: str, model: str, request: ChatRequest, *, stream: bool) -> None:
        """A request goes out, for the first time or once more."""
        if id in self._open:
            return
        if self._file is None or self._size > MOST_OF_FILE:
            self._next_file()
        self._calls += 1
        self._open[id] = _Open(self._calls, time.monotonic())
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        last = self._last.pop(actor, None) or _Last()
        self._note(last, request)
        self._last[actor] = last
        if len(self._last) > MOST_ACTORS:
            self._last.popitem(last=False)
        parameters = {
            name: value for name in _PARAMETERS if (value := getattr(request, name)) != getattr(_DEFAULTS, name)
        }
        line = AskedLine(
            number=self._calls,
            id=id,
            time=datetime.now(UTC),
            actor=actor,
            model=model,
            system=last.system,
            messages=ranges(last.numbers),
            tools=ranges(last.tools),
            parameters={**parameters, "stream": stream},
        )
        self._put(_encoded(line))

    def sent(self, id: str, body: bytes) -> None:
        """The request goes out with this body; tries after the first have the same."""
        call = self._open.get(id)
        if call is None or call.sent or len(body) > MOST_OF_BODY:
            return
        call.sent = True
        numbers = [self._piece_of_body(piece) for piece in parted(self._redact(body))]
        self._put(_encoded(SentLine(call.number, ranges(numbers))))

    def made_again(self, id: str, error: CallboardError, wait: float) -> None:
        """A try has failed, and another follows."""
        call = self._open.get(id)
        if call is not None:
            call.failures.append(FailedTry(error=str(error), wait=wait))

    def answered(self, id: str, reply: ChatReply) -> None:
        """The model has replied."""
        call = self._open.pop(id, None)
        if call is None:
            return
        line = AnsweredLine(
            number=call.number,
            seconds=time.monotonic() - call.began,
            text=reply.text,
            reasoning=reply.reasoning,
            tool_calls=reply.tool_calls,
            stop=reply.stop,
            usage=reply.usage,
            cost=reply.cost,
            failures=tuple(call.failures),
        )
        data = _encoded(line)
        self._put(data if len(data) <= LONGEST else _encoded(_shortened(line, self._cut)))

    def failed(self, id: str, error: str) -> None:
        """It gets no reply from this model."""
        call = self._open.pop(id, None)
        if call is not None:
            seconds, failures = time.monotonic() - call.began, tuple(call.failures)
            self._put(_encoded(AnsweredLine(number=call.number, seconds=seconds, error=error, failures=failures)))

    def end(self) -> None:
        """The run is over."""
        if self._file is not None:
            self._file.end()
        self._last.clear()

    # --- pieces ---------------------------------------------------------------------------------------------

    def _note(self, last: _Last, request: ChatRequest) -> None:
        """Have the numbers of all pieces of a request, which makes it the actor's last one."""
        room = MOST_OF_CALL
        if request.system != last.said:
            last.said, last.system = request.system, self._piece(request.system) if request.system else 0
        if request.tools is not last.offered:
            last.offered, last.tools = request.tools, [self._piece(tool) for tool in request.tools]
        before, now = last.messages, request.messages
        same = 0
        for old, new in zip(before, now, strict=False):
            if old is not new:
                break
            same += 1
        added: list[int] = []
        for turn in reversed(now[same:]):  # where there is too much, the newest are kept
            size = self._size
            added.append(self._piece(shown(turn, self._clean)) if room > 0 else self._piece(_LEFT_OUT))
            room -= self._size - size
        last.messages, last.numbers = now, [*last.numbers[:same], *reversed(added)]

    def _piece(self, value: Any) -> int:
        data = _encoded(value)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        number = self._known.get(digest)
        if number is None:
            number = self._known[digest] = self._pieces = self._pieces + 1
            if len(data) > LONGEST:
                data = _encoded(_shortened(value, self._cut))
            self._put(b'{"line":"piece","number":%d,"value":%b}' % (number, data))
        return number

    def _piece_of_body(self, data: bytes) -> int:
        digest = hashlib.blake2b(data, digest_size=16, key=b"body").digest()
        number = self._known.get(digest)
        if number is None:
            number = self._known[digest] = self._pieces = self._pieces + 1
            text = data.decode("utf-8", "replace")
            value = _encoded(text if len(data) <= LONGEST else _cut(text))
            self._put(b'{"line":"piece","number":%d,"value":%b}' % (number, value))
        return number

    def _clean(self, text: str) -> str:
        return self._redact(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def _cut(self, text: str) -> str:
        return _cut(self._clean(text)) if len(text) > LONGEST_TEXT else text

    # --- the file -------------------------------------------------------------------------------------------

    def _next_file(self) -> None:
        if self._file is not None:
            self._file.end()
        self._files += 1
        self._file = self._open_file(self._files)
        self._size = self._pieces = 0
        self._known.clear()
        self._last.clear()

    def _put(self, line: bytes) -> None:
        assert self._file is not None
        self._size += len(line)
        self._file.append(self._redact(line))


class _Open:
    """A call without an end yet."""

    __slots__ = ("began", "failures", "number", "sent")

    def __init__(self, number: int, began: float) -> None:
        self.number = number
        self.began = began
        self.failures: list[FailedTry] = []
        self.sent = False


class _Last:
    """The last request of an actor, and the numbers of its pieces."""

    __slots__ = ("messages", "numbers", "offered", "said", "system", "tools")

    def __init__(self) -> None:
        self.said = ""
        self.system = 0
        self.offered: tuple[Any, ...] = ()
        self.tools: list[int] = []
        self.messages: tuple[Turn, ...] = ()
        self.numbers: list[int] = []


_LEFT_OUT = {"role": "user", "content": "[left out here: this request was too long to be kept as a whole]"}


def parted(body: bytes) -> list[bytes]:
    """JSON without blanks, cut behind each object that ends an item of a list; put together it is what it was."""
    return body.replace(b"},{", b"}\0,{").replace(b"}]", b"}\0]").split(b"\0")  # no NUL stands in JSON as it is


def ranges(numbers: Iterable[int]) -> Ranges:
    """Numbers as rows of them: [1, 2, 3, 7] as [(1, 3), (7, 7)]."""
    found: Ranges = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def shown(turn: Turn, clean: Callable[[str], str]) -> Any:
    """A turn as it is kept: what is no text of it is counted. `clean` takes secrets out."""
    if isinstance(turn, UserTurn | ToolTurn) and not isinstance(turn.content, str):
        told = msgspec.to_builtins(msgspec.structs.replace(turn, content=""))
        return {**told, "content": [_part(part, clean) for part in turn.content]}
    return turn


def _part(part: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(part, ImagePart):
        what = {"url": clean(part.url)[:200]} if part.url else {"bytes": len(part.data)}
        return {"type": "image", "media_type": part.media_type, **what}
    if isinstance(part, FilePart):
        text = {"text": part.data.decode("utf-8", "replace")} if is_text(part) else {"bytes": len(part.data)}
        return {"type": "file", "name": part.name, "media_type": part.media_type, **text}
    return part


def _encoded(value: Any) -> bytes:
    """As JSON, whatever models and tools have written; half a character is a `?`."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):  # a call must not fail for its record
        return msgspec.json.encode(_mended(value))


def _mended(value: Any) -> Any:
    try:
        return _texts(msgspec.to_builtins(value), lambda text: text.encode("utf-8", "replace").decode())
    except (TypeError, ValueError, RecursionError):
        return {"role": "user", "content": "[this could not be kept: it is no JSON]"}


def _shortened(value: Any, cut: Callable[[str], str]) -> Any:
    """The same with the middles of long texts left out, and nothing but that fact if there are too many of them."""
    told = _texts(msgspec.to_builtins(value), cut)
    if len(msgspec.json.encode(told)) <= LONGEST:
        return told
    if isinstance(value, AnsweredLine):
        return msgspec.structs.replace(value, text=cut(value.text), reasoning=cut(value.reasoning), tool_calls=())
    return _LEFT_OUT


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out here ...]\n{text[-half:]}"


def _texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(key)): _texts(each, change) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_texts(each, change) for each in value]
    return value
