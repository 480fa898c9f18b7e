"""Cassette: the external results of a run as lines of JSON, so that it can be replayed without a network or processes.

    {"line":"cassette","callboard":"0.1.0","target":"greeter","model":"openai:gpt-4o-mini",...}
    {"line":"piece","hash":"6ff3c0e1...","value":{"role":"user","content":"Ann"}}
    {"line":"reply","at":"/greeter","request":"09a1...","asked":{"messages":["6ff3c0e1..."],...},"reply":{...}}
    {"line":"done","at":"/greeter/execute_command","kind":"tool","name":"execute_command","request":"77d0...",...}
    {"line":"answer","at":"/greeter/ok","question":"Send it?","value":"yes","by":"terminal"}
    {"line":"end","status":"done"}

`at` is the path of the asking actor below the run. Several lines of one kind with the same `at` are in the order of
the requests. `request` is the hash of the request. Turns, tools and system prompts are pieces, each written once, so
that a request can be read and compared with another. Paths of the machine are replaced by `‹cwd›`, `‹home›`,
`‹agent›` and so on. Ids of calls are counted. Headers and keys are not recorded.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import msgspec

from .chat import ChatReply
from .decoding import json_decoder
from .errors import CallboardError, InvalidFile
from .messages import Failure
from .problems import Problem

VERSION = 1
"""Version of the format that is written. Version 1 is written as no `version` at all."""


class CassetteDiffers(CallboardError):
    """A run makes a request that is not in its cassette."""

    code = "cassette_differs"


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", omit_defaults=True):
    """Base of all lines."""


class Head(Line, frozen=True, kw_only=True, tag="cassette"):
    """First line of a cassette.

    Attributes:
        version: version of this format.
        callboard: version of Callboard that recorded it.
        recorded: time of the recording (RFC 3339).
        target, prompt: target and prompt of the run.
        model: default model of the run; "" if there was none.
    """

    version: int = 1
    callboard: str = ""
    recorded: str = ""
    target: str = ""
    prompt: str = ""
    model: str = ""


class Piece(Line, frozen=True, kw_only=True, tag="piece"):
    """Turn, tool, or system prompt."""

    hash: str
    value: Any


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Request to a model, with hashes of its pieces.

    Attributes:
        model: model as it was named; "" for the default.
        parameters: further parameters: temperature, response_schema, ...
    """

    model: str = ""
    system: str = ""
    messages: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    parameters: dict[str, Any] = {}


class ReplyLine(Line, frozen=True, kw_only=True, tag="reply"):
    """Request to a model, with its reply or error."""

    at: str
    request: str
    asked: RecordedRequest
    reply: ChatReply | None = None
    error: Failure | None = None
    seconds: float = 0.0


class DoneLine(Line, frozen=True, kw_only=True, tag="done"):
    """Request to a tool, a script, a server or a knowledge base, with its result or error.

    Attributes:
        kind, name: see `actors/work/playback`.
        given: input of the effect.
        value: its result.
        error: its failure.
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
    """Value that the run read from its environment: the time, names of this machine."""

    at: str
    name: str
    value: Any


class AnswerLine(Line, frozen=True, kw_only=True, tag="answer"):
    """Question with its answer, or closed without one (`reason`: `timeout` or `nobody`)."""

    at: str
    question: str
    value: str | list[str] = ""
    by: str = ""
    reason: str = ""


class WindowLine(Line, frozen=True, kw_only=True, tag="window"):
    """Window of a model in tokens; None if unknown."""

    model: str
    tokens: int | None = None


class CassetteEnd(Line, frozen=True, kw_only=True, tag="end"):
    """Last line, with the final status of the run."""

    status: str


AnyLine: TypeAlias = Head | Piece | ReplyLine | DoneLine | ValueLine | AnswerLine | WindowLine | CassetteEnd

_LINES = json_decoder(AnyLine)


def hash_of(value: Any) -> str:
    """Return a digest that identifies a JSON value."""
    # A replayed request may have its keys in another order, and must find the same recorded line.
    data = msgspec.json.encode(value, order="deterministic")
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def read_cassette(text: str, file: str) -> list[AnyLine]:
    """Return the lines of a cassette, from its head to its end.

    Raises:
        InvalidFile: the text is no cassette, or is incomplete.
    """
    lines: list[AnyLine] = []
    # Not `splitlines`: JSON strings may contain U+2028 and other characters that end a line for Python alone.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            lines.append(_LINES.decode(line))
        except msgspec.MsgspecError as error:
            raise _invalid(file, number, f"this is not a line of a cassette: {error}") from None
        if number == 1 and not isinstance(lines[0], Head):
            raise _invalid(file, 1, 'this is not a cassette: its first line should begin with {"line":"cassette"')
        if isinstance(lines[0], Head) and lines[0].version > VERSION:
            formats = f"its format is {lines[0].version}, this one reads {VERSION}"
            raise _invalid(file, 1, f"this cassette was recorded by a newer version of callboard ({formats})")
    if not lines:
        raise _invalid(file, 1, "this is not a cassette: the file is empty")
    if not isinstance(lines[-1], CassetteEnd):
        raise _invalid(file, len(lines), "this cassette is incomplete: its last line is missing")
    return lines


def _invalid(file: str, line: int, message: str) -> InvalidFile:
    problem = Problem(
        severity="error",
        code="cassette",
        message=message,
        file=file,
        line=line,
        column=1,
        hint="record it again",
    )
    return InvalidFile(str(problem), [problem])
