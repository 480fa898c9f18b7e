"""Model call recorder: the request and the reply of each model call of a run, as lines of JSON.

A run has a recorder or none (`RunCallbacks.recorder`). The gateway passes it to each `GatewayCall`, which checks for it
twice per try and once at the end. So a run without a recorder pays for three attribute look-ups.

The lines are in the order of events:

    {"line":"piece","number":3,"value":{"role":"user","content":"..."}}     a turn, a tool, or a system prompt
    {"line":"asked","number":2,"actor":"/run-1/lead","messages":[[1,3],[7,7]],...}
    {"line":"sent","number":2,"body":[[8,8],[3,3],[9,12]]}                  the same as it went to the provider
    {"line":"answered","number":2,"text":"...","seconds":1.2,...}

Problem: each request repeats the whole conversation, so a file of complete requests grows with the square of its
length. Instead, each turn, tool and system prompt is a *piece* that is written once. A request lists its pieces as
ranges of their numbers.

The recorder finds new turns without reading them: a turn that is the same object as in the actor's last request has a
number already. All others (a rebuilt conversation, another agent with the same tools) are found by a digest of their
JSON. So the work in the event loop is proportional to the new pieces. It is less than that of a codec, which encodes
the whole conversation each time. The file's own thread does the writing. Thirty turns of 100 kB take 3.0 MB, and as
much again for the bodies.

The body of each request is recorded as well, as the provider's codec encoded it. It is split after each object that is
an item of a list: in all formats, that is between turns and between tools. So its pieces repeat too. They have no
object identity, so each request has to digest all of them; a body above `MOST_OF_BODY` is therefore not recorded.

Bounds: a piece above `LONGEST` loses the middle of its long texts. Images and binary files are recorded by size only.
If the new pieces of a request exceed `MOST_OF_CALL`, the oldest are omitted. After `MOST_OF_FILE` bytes a new file
starts, without any known pieces, so that it can be read alone. At most two files exist, so the oldest calls are dropped
first; the numbers of the remaining calls show that.

Secrets: each line passes `redact` before it is written. A text that is cut passes it before the cut, since half a
secret is not recognised. Headers, which contain the keys, never reach the recorder.
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
from ....protocol.control.resources import FailedTry
from ....protocol.errors import CallboardError
from .codec import is_text

LONGEST = 1024 * 1024
"""Maximum size of a piece, in bytes of JSON."""

LONGEST_TEXT = 64 * 1024
"""Characters that remain of each longer text in a piece above `LONGEST`: half from its start, half from its end."""

MOST_OF_CALL = 4 * 1024 * 1024
"""Maximum size of the new pieces of a request, in bytes."""

MOST_OF_BODY = 1024 * 1024
"""Maximum size of a recorded body, in bytes. This size takes five milliseconds of the event loop."""

MOST_OF_FILE = 8 * 1024 * 1024
"""Size in bytes after which a new file starts. There are at most two files."""

MOST_ACTORS = 256
"""Number of actors whose last request is remembered."""

MOST_OPEN = 10_000
"""Number of unfinished calls that are remembered; a cancelled call never finishes."""

Ranges = list[tuple[int, int]]
"""Numbers of pieces, as the first and last number of each consecutive range."""

_PARAMETERS = (
    *("tool_choice", "response_schema", "temperature", "top_p", "max_tokens", "reasoning_effort", "thinking_budget"),
    *("stop", "extra"),
)
_DEFAULTS = ChatRequest(messages=())


class PieceLine(msgspec.Struct, frozen=True, tag="piece", tag_field="line"):
    """Turn, tool, system prompt, or part of a body as text. Numbers start at 1 in each file."""

    number: int
    value: msgspec.Raw


class AskedLine(msgspec.Struct, frozen=True, kw_only=True, tag="asked", tag_field="line"):
    """Request of a call. `system` is the number of a piece, 0 for none."""

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
    """Body of a request, as the concatenation of its pieces."""

    number: int
    body: Ranges


class AnsweredLine(msgspec.Struct, frozen=True, kw_only=True, tag="answered", tag_field="line", omit_defaults=True):
    """End of a call, with a reply or an `error`. `seconds` is its duration."""

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
    """Output of a recorder. No method blocks."""

    def append(self, line: bytes) -> None:
        """Queue a line for writing."""

    def end(self) -> None:
        """Close the file after the queued lines."""


class Recorder:
    """Recorder of a run's model calls. Call its methods on the event loop only; none of them blocks.

    Args:
        open_file: returns the file with this number, from 1; called only when there is a line to write.
        redact: removes secrets from an encoded line.
        files: number of existing files, if the run is resumed.
        calls: number of recorded calls, if the run is resumed.
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
        """Record a request. A second try with the same `id` is not recorded again."""
        if id in self._open:
            return
        # Only at the start of a call, so that a request and its pieces are in one file.
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
        """Record the body of the request, unless it exceeds `MOST_OF_BODY`.

        Later tries have the same body, so only the first is recorded. A call without `asked` is ignored.
        """
        call = self._open.get(id)
        if call is None or call.sent or len(body) > MOST_OF_BODY:
            return
        call.sent = True
        numbers = [self._piece_of_body(piece) for piece in parted(self._redact(body))]
        self._put(_encoded(SentLine(call.number, ranges(numbers))))

    def made_again(self, id: str, error: CallboardError, wait: float) -> None:
        """Record a failed try that is followed by another."""
        call = self._open.get(id)
        if call is not None:
            call.failures.append(FailedTry(error=str(error), wait=wait))

    def answered(self, id: str, reply: ChatReply) -> None:
        """Record the reply of a call."""
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
        """Record the final failure of a call with this model."""
        call = self._open.pop(id, None)
        if call is not None:
            seconds, failures = time.monotonic() - call.began, tuple(call.failures)
            self._put(_encoded(AnsweredLine(number=call.number, seconds=seconds, error=error, failures=failures)))

    def end(self) -> None:
        """Close the file at the end of the run."""
        if self._file is not None:
            self._file.end()
        self._last.clear()

    # --- pieces ---------------------------------------------------------------------------------------------

    def _note(self, last: _Last, request: ChatRequest) -> None:
        """Write the new pieces of a request, and store the numbers of all its pieces in `last`."""
        room = MOST_OF_CALL
        if request.system != last.said:
            last.said, last.system = request.system, self._piece(request.system) if request.system else 0
        if request.tools is not last.offered:
            last.offered, last.tools = request.tools, [self._piece(tool) for tool in request.tools]
        before, now = last.messages, request.messages
        same = 0
        for old, new in zip(before, now, strict=False):
            # Turns are frozen structs, so the same object has the same contents. Comparing contents would take
            # quadratic time over a conversation.
            if old is not new:
                break
            same += 1
        added: list[int] = []
        for turn in reversed(now[same:]):  # newest first, so that the oldest are omitted if there are too many
            size = self._size
            added.append(self._piece(recorded_turn(turn, self._clean)) if room > 0 else self._piece(_LEFT_OUT))
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
        # The key separates the two kinds of pieces: a body piece is a JSON text, not a JSON value.
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
    __slots__ = ("began", "failures", "number", "sent")

    def __init__(self, number: int, began: float) -> None:
        self.number = number
        self.began = began
        self.failures: list[FailedTry] = []
        self.sent = False


class _Last:
    """Last request of an actor, with the numbers of its pieces."""

    __slots__ = ("messages", "numbers", "offered", "said", "system", "tools")

    def __init__(self) -> None:
        self.said = ""
        self.system = 0
        self.offered: tuple[Any, ...] = ()
        self.tools: list[int] = []
        self.messages: tuple[Turn, ...] = ()
        self.numbers: list[int] = []


_LEFT_OUT = {"role": "user", "content": "[omitted: this request was too long to be stored completely]"}


def parted(body: bytes) -> list[bytes]:
    """Split compact JSON after each object that is an item of a list. The pieces joined are the original.

    A `},{` inside a string also splits it, which does no harm: the pieces are never decoded one by one.
    """
    return body.replace(b"},{", b"}\0,{").replace(b"}]", b"}\0]").split(b"\0")  # JSON escapes NUL, so it is free


def ranges(numbers: Iterable[int]) -> Ranges:
    """Return numbers as ranges: [1, 2, 3, 7] as [(1, 3), (7, 7)]."""
    found: Ranges = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def recorded_turn(turn: Turn, clean: Callable[[str], str]) -> Any:
    """Return a turn for recording, with the size of images and binary files instead of their bytes.

    Text files stay as text. An image by URL keeps the first 200 characters of the URL.

    Args:
        clean: removes secrets from a text.
    """
    if isinstance(turn, UserTurn | ToolTurn) and not isinstance(turn.content, str):
        fields = msgspec.to_builtins(msgspec.structs.replace(turn, content=""))
        return {**fields, "content": [_part(part, clean) for part in turn.content]}
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
    """Encode any value of a model or tool as JSON. An unpaired surrogate becomes `?`."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):  # recording must not make a call fail
        return msgspec.json.encode(_mended(value))


def _mended(value: Any) -> Any:
    try:
        return _texts(msgspec.to_builtins(value), lambda text: text.encode("utf-8", "replace").decode())
    except (TypeError, ValueError, RecursionError):
        return {"role": "user", "content": "[this could not be stored: it is not JSON]"}


def _shortened(value: Any, cut: Callable[[str], str]) -> Any:
    """Return the value with long texts cut, or a placeholder if it is still above `LONGEST`."""
    short = _texts(msgspec.to_builtins(value), cut)
    if len(msgspec.json.encode(short)) <= LONGEST:
        return short
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
