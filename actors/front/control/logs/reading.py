"""Gets events back from a log. Blocking; runs in threads.

A line that is torn (the process was killed while it wrote) and whatever follows it is left out.
"""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from .....protocol.control.things import RunInfo
from .....protocol.decoding import json_decoder
from .....protocol.events import KINDS
from .....protocol.events.decode import decode
from .....protocol.jsonrpc import UNREADABLE
from ....views.run_view import RunView
from ..runs.summary import CONCERNS, rfc3339, sum_up
from .files import EVENTS

PAGE = 256 * 1024
"""Bytes read at a time, unless a single line is longer."""


class LoggedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as it was encoded, once for all readers: the line of the log without its newline."""

    seq: int
    kind: str
    data: bytes
    actor: str = ""


class Page(msgspec.Struct, gc=False):
    """Events from a place in the log, and the place after them; no events, if nothing more is there now."""

    events: list[LoggedEvent]
    offset: int


class _Head(msgspec.Struct, gc=False):
    seq: int
    kind: str
    actor: str = ""


class _Time(msgspec.Struct, gc=False):
    ts: datetime


_HEAD = json_decoder(_Head)
_TIME = json_decoder(_Time)


def logged(line: bytes) -> LoggedEvent:
    """A whole line as readers have it."""
    head = _HEAD.decode(line)
    return LoggedEvent(head.seq, head.kind, line, head.actor)


def read_page(directory: Path, offset: int, after: int, most: int = 1_000_000) -> Page:
    """The next events of a log from byte `offset`, as far as they come after number `after`."""
    events: list[LoggedEvent] = []
    try:
        with (directory / EVENTS).open("rb") as file:
            if not offset and after:
                offset = _place_after(file, after)
            while not events:
                file.seek(offset)
                block = _lines(file)
                if not block:
                    break  # nothing, or a line that is not complete
                for line in block[:-1].split(b"\n"):
                    if len(events) >= most:
                        return Page(events, offset)
                    head = _head(line)
                    if head is None:
                        return Page(events, offset)
                    if head.seq > after:
                        events.append(LoggedEvent(head.seq, head.kind, line, head.actor))
                    offset += len(line) + 1
    except FileNotFoundError:
        pass
    return Page(events, offset)


def _lines(file: BinaryIO) -> bytes:
    """Whole lines from where the file stands: as many as `PAGE` holds, or one that is longer."""
    block, size = b"", PAGE
    while True:
        more = file.read(size)
        end = more.rfind(b"\n") + 1
        if end or not more:
            return block + more[:end] if end else b""
        block += more
        size = len(block)  # twice as much each time: a line of 100 MB takes ten reads


def _place_after(file: BinaryIO, after: int) -> int:
    """Where to begin to read for what comes after a number: at a line not far before it. The numbers grow."""
    low, high = 0, file.seek(0, 2)
    while high - low > PAGE:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()  # the rest of the line that stands there
        begin = file.tell()
        head = _head(file.readline().removesuffix(b"\n"))
        if head is None or head.seq > after:  # unreadable: what is before it can be read in any case
            high = middle
        else:
            low = begin
    return low


def _head(line: bytes) -> _Head | None:
    try:
        return _HEAD.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def size_of(directory: Path) -> int:
    """Bytes of a log; 0 if there is none."""
    try:
        return (directory / EVENTS).stat().st_size
    except OSError:
        return 0


def last_event(directory: Path) -> LoggedEvent | None:
    """The last whole event of a log."""
    try:
        with (directory / EVENTS).open("rb") as file:
            end = file.seek(0, 2)
            block = b""
            while end > 0:
                begin = max(0, end - PAGE)
                file.seek(begin)
                block = file.read(end - begin) + block
                end = begin
                lines = block.split(b"\n")
                for line in reversed(lines[1:] if begin else lines):
                    head = _head(line)
                    if head is not None:
                        return LoggedEvent(head.seq, head.kind, line, head.actor)
    except FileNotFoundError:
        pass
    return None


def summed_up(directory: Path, info: RunInfo) -> RunInfo:
    """What the log of a run whose process is gone says about it; one without an end is `lost`."""
    info, view = msgspec.structs.replace(info, seq=0), RunView()
    offset, last = 0, b""
    while True:
        page = read_page(directory, offset, info.seq)
        if not page.events:
            break
        offset = page.offset
        for logged in page.events:
            info.seq, last = logged.seq, logged.data
            if KINDS.get(logged.kind) in CONCERNS and (event := decode(logged.data)) is not None:
                with contextlib.suppress(*UNREADABLE):  # of another version, perhaps; it must not hide all other runs
                    view.see(event)
                    sum_up(info, view, event)
    if not info.over:
        with contextlib.suppress(*UNREADABLE):
            info.ended = rfc3339(_TIME.decode(last).ts)
        info.status, info.ended, info.open_questions = "lost", info.ended or info.started or None, 0
    return info
