"""Reader of recorded model calls: requests and replies of a run (see `work.models.recorder`). Blocking.

The recorder stores each message and tool once, as a numbered piece, and requests refer to pieces by ranges of numbers.
So a conversation of n turns takes linear space, not quadratic.

Lines that cannot be decoded are skipped: the last one may be torn by a kill during the write. A piece that a request
refers to but that no line has (the disk was full) is replaced by a text that says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from .....protocol.control.resources import ModelCall, ModelCallDetail, ShownReply, ShownRequest
from .....protocol.decoding import convert, json_decoder
from .....protocol.json_values import UNREADABLE
from ....work.models.recorder import AnsweredLine, AskedLine, PieceLine, Ranges, SentLine
from ..runs.summary import rfc3339
from .files import REQUESTS

_PIECE = b'{"line":"piece"'
_Line: TypeAlias = AskedLine | SentLine | AnsweredLine
_LINE: msgspec.json.Decoder[_Line] = json_decoder(_Line)
_PIECE_LINE = json_decoder(PieceLine)
_LOST = "[not recorded: it could not be written to disk]"


def read_calls(directory: Path) -> list[ModelCall]:
    """Return the recorded calls of a run, ordered by number. The recorder drops the oldest ones to bound the size."""
    calls: dict[int, ModelCall] = {}
    for path in _files(directory):
        for raw in _lines(path):
            if raw.startswith(_PIECE):
                continue
            line = _decoded(raw)
            if isinstance(line, AskedLine):
                calls[line.number] = _asked(line)
            elif isinstance(line, AnsweredLine) and line.number in calls:
                _ends(calls[line.number], line)
    return [calls[number] for number in sorted(calls)]


def read_call(directory: Path, number: int) -> ModelCallDetail | None:
    """Return one call with its request and reply; None if it is not recorded."""
    found: ModelCallDetail | None = None
    for path in _files(directory):
        pieces: dict[int, bytes] = {}
        for raw in _lines(path):
            if raw.startswith(_PIECE):
                # Pieces precede the request that first uses them, so later ones are irrelevant to this call.
                if found is None:
                    pieces[_number_in(raw)] = raw
                continue
            line = _decoded(raw)
            if line is None or line.number != number:
                continue
            if isinstance(line, AskedLine):
                found = ModelCallDetail(**msgspec.structs.asdict(_asked(line)), request=_request(line, pieces))
            elif found is not None and isinstance(line, AnsweredLine):
                _ends(found, line)
                found.failures = list(line.failures)
                if not line.error:
                    found.reply = convert(line, ShownReply, from_attributes=True)
    return found


def read_body(directory: Path, number: int) -> str | None:
    """Return the request body of a call as sent to the provider; None if it is not recorded."""
    for path in _files(directory):
        pieces: dict[int, bytes] = {}
        for raw in _lines(path):
            if raw.startswith(_PIECE):
                pieces[_number_in(raw)] = raw
                continue
            line = _decoded(raw)
            if isinstance(line, SentLine) and line.number == number:
                return "".join(map(str, _values(line.body, pieces)))
    return None


def last_call_numbers(directory: Path) -> tuple[int, int]:
    """Return the number of the newest file and of the newest call of a run; 0 for either without any."""
    files = _files(directory)
    if not files:
        return 0, 0
    last = int(files[-1].name.split(".")[1])
    return last, max((call.number for call in read_calls(directory)), default=0)


def has_calls(directory: Path) -> bool:
    """Return True if any model call of a run is recorded."""
    return bool(_files(directory))


def _files(directory: Path) -> list[Path]:
    found = directory.glob(REQUESTS.format("*"))
    numbered = [(int(number), path) for path in found if (number := path.name.split(".")[1]).isdecimal()]
    return [path for _, path in sorted(numbered)]


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError:  # the recorder has just replaced the file, or the run was deleted
        return


def _decoded(raw: bytes) -> _Line | None:
    try:
        return _LINE.decode(raw)
    except UNREADABLE:
        return None


def _number_in(raw: bytes) -> int:
    """Return the number of a piece without decoding its value, which may be long."""
    begin = raw.find(b":", len(_PIECE)) + 1
    digits = raw[begin : raw.find(b",", begin)]
    return int(digits) if digits.isdigit() else 0


def _asked(line: AskedLine) -> ModelCall:
    return ModelCall(
        number=line.number,
        id=line.id,
        started=rfc3339(line.time),
        actor=line.actor,
        model=line.model,
        messages=sum(last - first + 1 for first, last in line.messages),
        tools=sum(last - first + 1 for first, last in line.tools),
    )


def _ends(call: ModelCall, line: AnsweredLine) -> None:
    call.status = "failed" if line.error else "answered"
    call.stop, call.error, call.seconds, call.cost = line.stop, line.error, line.seconds, line.cost
    call.calls = [each.name for each in line.tool_calls]
    call.input_tokens, call.output_tokens = line.usage.input_tokens, line.usage.output_tokens
    call.tries = len(line.failures) + 1


def _request(line: AskedLine, pieces: dict[int, bytes]) -> ShownRequest:
    turns = _values(line.messages, pieces)
    messages = [turn if isinstance(turn, dict) else {"role": "user", "content": str(turn)} for turn in turns]
    tools = [tool if isinstance(tool, dict) else {"name": str(tool)} for tool in _values(line.tools, pieces)]
    system = str(_value(line.system, pieces)) if line.system else ""
    return ShownRequest(system=system, messages=messages, tools=tools, parameters=line.parameters)


def _values(ranges: Ranges, pieces: dict[int, bytes]) -> list[Any]:
    return [_value(number, pieces) for first, last in ranges for number in range(first, last + 1)]


def _value(number: int, pieces: dict[int, bytes]) -> Any:
    raw = pieces.get(number)
    try:
        return _LOST if raw is None else msgspec.json.decode(_PIECE_LINE.decode(raw).value)
    except UNREADABLE:
        return _LOST
