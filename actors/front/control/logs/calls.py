"""Gets back what the models of a run saw and said (see `work.models.recorder`). Blocking; runs in threads.

Lines that can't be read are left out: the last one may be torn, the process was killed while it wrote. What a request
names and no line has (the disk was full) says so in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from .....protocol.decoding import convert, json_decoder
from .....protocol.json_values import UNREADABLE
from .....protocol.model_calls import ModelCall, ModelCallDetail, ShownReply, ShownRequest
from ....work.models.recorder import AnsweredLine, AskedLine, PieceLine, Ranges, SentLine
from ..runs.summary import rfc3339
from .files import REQUESTS

_PIECE = b'{"line":"piece"'
_Line: TypeAlias = AskedLine | SentLine | AnsweredLine
_LINE: msgspec.json.Decoder[_Line] = json_decoder(_Line)
_PIECE_LINE = json_decoder(PieceLine)
_LOST = "[this was not kept: it could not be written]"


def read_calls(directory: Path) -> list[ModelCall]:
    """The calls that are kept of a run, by their numbers. Those before the first were dropped for want of room."""
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
    """One call, whole; None if there is none of this number."""
    found: ModelCallDetail | None = None
    for path in _files(directory):
        pieces: dict[int, bytes] = {}
        for raw in _lines(path):
            if raw.startswith(_PIECE):
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
    """The body of the request of a call as it was sent to the provider; None if it is not kept."""
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


def kept_calls(directory: Path) -> tuple[int, int]:
    """The numbers of the last file and of the last call that are kept of a run; 0 where there is none."""
    files = _files(directory)
    if not files:
        return 0, 0
    last = int(files[-1].name.split(".")[1])
    return last, max((call.number for call in read_calls(directory)), default=0)


def has_calls(directory: Path) -> bool:
    """Whether anything of the kind is kept of a run."""
    return bool(_files(directory))


def _files(directory: Path) -> list[Path]:
    found = directory.glob(REQUESTS.format("*"))
    numbered = [(int(number), path) for path in found if (number := path.name.split(".")[1]).isdecimal()]
    return [path for _, path in sorted(numbered)]


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except OSError:  # it was replaced by a newer one, or removed, in this moment
        return


def _decoded(raw: bytes) -> _Line | None:
    try:
        return _LINE.decode(raw)
    except UNREADABLE:
        return None


def _number_in(raw: bytes) -> int:
    """The number of a piece, without decoding the rest."""
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
