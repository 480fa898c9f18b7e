"""Line splitter for a server's stdout, with bounded memory.

A line longer than the limit is never held. It is discarded as it arrives, except its beginning and its last bytes: one
of them contains the id of the request that it answers. Discarding has a limit too; see `LineSplitter.endless`.
"""

from __future__ import annotations

import re
from typing import final

HEAD = 256
TAIL = 128

JUNK = 1024 * 1024
"""Bytes without a message, in a row, after which the process counts as no MCP server."""

ENDLESS = 8
LONGEST = 64 * 1024 * 1024
"""Length limit of a discarded line: the larger of this multiple of the limit and these bytes. A longer line counts as
endless."""

_VERSION = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ANSWER = rb'"(?:result|error)"\s*:'  # excludes requests of the server, which have ids too, possibly the same numbers
_ID_FIRST = re.compile(rb"\s*\{\s*" + _VERSION + rb'"id"\s*:\s*(\d+)\s*,\s*' + _VERSION + _ANSWER)
_ANSWER_FIRST = re.compile(rb"\s*\{\s*" + _VERSION + _ANSWER)
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class LineTooLong:
    """Placeholder for a line that was too long.

    Attributes:
        size: its bytes, without the newline.
        id: id of the request that it answers, if it can be found.
    """

    __slots__ = ("id", "size")

    def __init__(self, size: int, head: bytes, tail: bytes) -> None:
        self.size = size
        self.id = id_in(head, tail)


def id_in(head: bytes, tail: bytes) -> int | None:
    """Return the id of the request that a line answers, from its beginning and its end; None if neither has it."""
    found = _ID_FIRST.match(head) or (_ANSWER_FIRST.match(head) and _ID_LAST.search(tail))
    return int(found[1]) if found else None


@final
class LineSplitter:
    """Splitter that accepts pieces of output and returns complete lines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []  # of the incomplete line
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, data: bytes) -> list[bytes | LineTooLong]:
        """Return the lines that end in `data`, in order."""
        # The common case: a read of exactly one line is returned without a copy, its newline included.
        if not self._size and data.count(b"\n") == 1 and data[-1:] == b"\n":
            return [data] if len(data) <= self._limit else [LineTooLong(len(data) - 1, data[:HEAD], data[-TAIL:])]
        *ends, rest = data.split(b"\n")
        lines: list[bytes | LineTooLong] = []
        for end in ends:
            self._add(end)
            lines.append(self._line())
        self._add(rest)
        return lines

    @property
    def endless(self) -> bool:
        """True if the current line counts as endless: far too long, or long without a message's beginning."""
        if self._size <= JUNK:
            return False
        return self._size > max(ENDLESS * self._limit, LONGEST) or self.beginning.lstrip()[:1] not in (b"{", b"[")

    @property
    def beginning(self) -> bytes:
        """First bytes of the current line."""
        return self._head or b"".join(self._pieces[:1])[:HEAD]

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
            return
        # This piece makes the line exceed the limit: from now on only its ends are retained.
        if self._pieces or not self._head:
            self._pieces.append(piece)
            whole = b"".join(self._pieces)
            self._head, self._tail = whole[:HEAD], whole[-TAIL:]
            self._pieces.clear()
        else:
            self._tail = (self._tail + piece)[-TAIL:]

    def _line(self) -> bytes | LineTooLong:
        whole = self._size <= self._limit
        line = b"".join(self._pieces) if whole else LineTooLong(self._size, self._head, self._tail)
        self._pieces.clear()
        self._size = 0
        self._head = self._tail = b""
        return line
