"""Reader of event logs. Blocking; call it in worker threads.

A read ends at the first line that cannot be decoded, for example one torn by a kill during the write.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from .....protocol.decoding import json_decoder
from .files import EVENTS

PAGE = 256 * 1024
"""Bytes per read, unless a single line is longer."""


class LoggedEvent(msgspec.Struct, frozen=True, gc=False):
    """Event as encoded once for all readers: the line of the log without its newline."""

    seq: int
    kind: str
    data: bytes
    actor: str = ""


class LogPage(msgspec.Struct, gc=False):
    """Events from one read, and the byte offset after them; no events if the log has no more now."""

    events: list[LoggedEvent]
    offset: int


class _Head(msgspec.Struct, gc=False):
    seq: int
    kind: str
    actor: str = ""


_HEAD = json_decoder(_Head)


def logged(line: bytes) -> LoggedEvent:
    """Return the event on a complete line."""
    head = _HEAD.decode(line)
    return LoggedEvent(head.seq, head.kind, line, head.actor)


def read_page(directory: Path, offset: int, after: int, most: int = 1_000_000) -> LogPage:
    """Return the next events from byte `offset` whose number is greater than `after`."""
    events: list[LoggedEvent] = []
    try:
        with (directory / EVENTS).open("rb") as file:
            if not offset and after:
                offset = _place_after(file, after)
            while not events:
                file.seek(offset)
                block = _lines(file)
                if not block:
                    break  # the end of the log, or an incomplete line
                for line in block[:-1].split(b"\n"):
                    if len(events) >= most:
                        return LogPage(events, offset)
                    head = _head(line)
                    if head is None:
                        return LogPage(events, offset)
                    if head.seq > after:
                        events.append(LoggedEvent(head.seq, head.kind, line, head.actor))
                    offset += len(line) + 1
    except FileNotFoundError:
        pass
    return LogPage(events, offset)


def _lines(file: BinaryIO) -> bytes:
    """Return complete lines from the current position: as many as fit into `PAGE`, or one longer line."""
    block, size = b"", PAGE
    while True:
        more = file.read(size)
        end = more.rfind(b"\n") + 1
        if end or not more:
            return block + more[:end] if end else b""
        block += more
        size = len(block)  # doubled each time: a line of 100 MB takes ten reads


def _place_after(file: BinaryIO, after: int) -> int:
    """Return the offset of a line shortly before event `after`, by binary search: event numbers only grow."""
    low, high = 0, file.seek(0, 2)
    while high - low > PAGE:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()  # skip the rest of the line at `middle`
        begin = file.tell()
        head = _head(file.readline().removesuffix(b"\n"))
        if head is None or head.seq > after:  # an unreadable line: events before it are still readable
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
    """Return the size of a log in bytes; 0 if there is none."""
    try:
        return (directory / EVENTS).stat().st_size
    except OSError:
        return 0


def last_event(directory: Path) -> LoggedEvent | None:
    """Return the last complete event of a log, read backwards from its end; None if there is none."""
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
