"""Files of run logs: layout on disk, summary file, and reader of events.

runs/                       0700
    .alive/<token>          locked by a live process (see `liveness`)
    run-7f3a01bc/           0700
        run.json            0600, summary; always replaced as a whole
        events.jsonl        0600, one event per line, as `callboard.protocol.events.encode` writes it
        requests.1.jsonl    0600, recorded model calls, if enabled (see `work.models.recorder`)

All functions block; call them in worker threads. A read of events ends at the first line that cannot be decoded, for
example one torn by a kill during the write.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from .....protocol.control.resources import RunInfo
from .....protocol.decoding import json_decoder
from .....protocol.requests import ID
from ....io.atomic_write import write_whole
from ....io.directories import private_directory

SUMMARY = "run.json"
EVENTS = "events.jsonl"
REQUESTS = "requests.{}.jsonl"


class StoredRun(msgspec.Struct, kw_only=True):
    """Content of `run.json`: the summary, and the token of the process that executes or executed the run."""

    version: int = 1
    process: str = ""
    info: RunInfo


_DECODER = json_decoder(StoredRun)


def is_id(run: str) -> bool:
    """Return True for a valid run id. No other text may become part of a path."""
    return ID.fullmatch(run) is not None


def read_summary(directory: Path) -> StoredRun | None:
    """Return the summary in a run's directory; None if it is missing or unreadable."""
    try:
        return _DECODER.decode((directory / SUMMARY).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_summary(directory: Path, kept: StoredRun, *, sync: bool = True) -> None:
    """Replace the summary atomically; with `sync`, it also survives a power cut.

    Raises:
        OSError: it cannot be written; the old one is intact.
    """
    write_whole(directory / SUMMARY, msgspec.json.encode(kept), private=True, durable=sync)


def make_private(directory: Path) -> None:
    """Create a directory, and its parents, that only the current user may enter.

    Raises:
        OSError: it cannot be created.
    """
    private_directory(directory)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


PAGE = 256 * 1024
"""Bytes per read, unless a single line is longer."""


class LoggedEvent(msgspec.Struct, frozen=True, gc=False):
    """Event encoded once for all its readers, as the line of the log without its newline."""

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
    """Decode a complete line of a log.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError: the line is no event.
    """
    head = _HEAD.decode(line)
    return LoggedEvent(head.seq, head.kind, line, head.actor)


def read_page(directory: Path, offset: int, after: int, most: int = 1_000_000) -> LogPage:
    """Return the next events from byte `offset` whose number is greater than `after`.

    Reads blocks of `PAGE` bytes until one has such an event. With `offset` 0, the place of event `after` is searched
    first. A missing log has no events.

    Args:
        most: maximum number of events.
    """
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
