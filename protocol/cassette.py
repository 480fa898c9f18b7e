"""A cassette: what a run got from outside, as lines of JSON, so that it can be played without a network or processes.

    {"line":"cassette","version":1,"callboard":"0.1.0","target":"greeter","model":"openai:gpt-4o-mini",...}
    {"line":"piece","hash":"6ff3c0e1...","value":{"role":"user","content":"Ann"}}
    {"line":"reply","at":"/greeter","request":"09a1...","asked":{"messages":["6ff3c0e1..."],...},"reply":{...}}
    {"line":"done","at":"/greeter/execute_command","kind":"tool","name":"execute_command","request":"77d0...",...}
    {"line":"answer","at":"/greeter/ok","question":"Send it?","value":"yes","by":"terminal"}
    {"line":"end","status":"done"}

`at` is the actor below the run that has asked, by its names; of several lines of one kind there the first is the first.
`request` is the hash of what was asked. Turns, tools and system prompts are pieces, each once, so that what a request
said can be read, and be compared with another. Paths of the machine stand as `‹cwd›`, `‹home›`, `‹agent›` and such;
ids of calls are counted; headers and keys are nowhere.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import msgspec

from .chat import ChatReply
from .decoding import json_decoder
from .errors import CallboardError, InvalidFile
from .failure import Failure
from .problems import Problem

VERSION = 1


class CassetteDiffers(CallboardError):
    """A run asks for something else than the cassette has that it is played by."""

    code = "cassette_differs"


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", omit_defaults=True):
    """Base of all lines."""


class Head(Line, frozen=True, kw_only=True, tag="cassette"):
    """The first line.

    Attributes:
        version: of this format; callboard: that has recorded it.
        recorded: when (RFC 3339).
        target, prompt: of the run.
        model: what answered where none was named; "" if that was nowhere.
    """

    version: int = VERSION
    callboard: str = ""
    recorded: str = ""
    target: str = ""
    prompt: str = ""
    model: str = ""


class Piece(Line, frozen=True, kw_only=True, tag="piece"):
    """A turn, a tool, or a system prompt."""

    hash: str
    value: Any


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to a model; its pieces are hashes.

    Attributes:
        model: as it was named; "" for the default.
        parameters: what else was given: temperature, response_schema, ...
    """

    model: str = ""
    system: str = ""
    messages: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    parameters: dict[str, Any] = {}


class ReplyLine(Line, frozen=True, kw_only=True, tag="reply"):
    """A model was asked, and replied or failed."""

    at: str
    request: str
    asked: Asked
    reply: ChatReply | None = None
    error: Failure | None = None
    seconds: float = 0.0


class DoneLine(Line, frozen=True, kw_only=True, tag="done"):
    """A tool, a script, a server or a knowledge base was asked.

    Attributes:
        kind, name: see `actors/work/playback`.
        given: what it was given.
        value: what it came to; error: what it failed with.
    """

    at: str
    kind: str
    name: str
    request: str
    given: Any = None
    value: Any = None
    error: Failure | None = None
    seconds: float = 0.0


class ValueLine(Line, frozen=True, kw_only=True, tag="value"):
    """Something that the run found out: the time, the names of this machine."""

    at: str
    name: str
    value: Any


class AnswerLine(Line, frozen=True, kw_only=True, tag="answer"):
    """A question was answered, or closed without an answer (`reason`: `timeout` or `nobody`)."""

    at: str
    question: str
    value: str | list[str] = ""
    by: str = ""
    reason: str = ""


class WindowLine(Line, frozen=True, kw_only=True, tag="window"):
    """So many tokens a model takes in; None if that is not known."""

    model: str
    tokens: int | None = None


class End(Line, frozen=True, kw_only=True, tag="end"):
    """The last line; how the run ended."""

    status: str


AnyLine: TypeAlias = Head | Piece | ReplyLine | DoneLine | ValueLine | AnswerLine | WindowLine | End

_LINES = json_decoder(AnyLine)


def hash_of(value: Any) -> str:
    """What tells values apart."""
    data = msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def read_cassette(text: str, file: str) -> list[AnyLine]:
    """The lines of a cassette; the first is its head, the last its end.

    Raises:
        InvalidFile: it is none, or not whole.
    """
    lines: list[AnyLine] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            lines.append(_LINES.decode(line))
        except msgspec.MsgspecError as error:
            raise _invalid(file, number, f"this is no line of a cassette: {error}") from None
        if number == 1 and not isinstance(lines[0], Head):
            raise _invalid(file, 1, 'this is no cassette: its first line should begin with {"line":"cassette"')
        if isinstance(lines[0], Head) and lines[0].version > VERSION:
            raise _invalid(file, 1, f"this cassette is of a later callboard (version {lines[0].version})")
    if not lines:
        raise _invalid(file, 1, "this is no cassette: it is empty")
    if not isinstance(lines[-1], End):
        raise _invalid(file, len(lines), "this cassette is not whole: its last line is missing")
    return lines


def _invalid(file: str, line: int, message: str) -> InvalidFile:
    problem = Problem(
        severity="error",
        code="cassette",
        message=message,
        file=file,
        line=line,
        column=1,
        hint="record it anew",
    )
    return InvalidFile(str(problem), [problem])
