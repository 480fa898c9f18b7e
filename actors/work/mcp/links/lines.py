"""What a server writes to its stdout, cut into lines, however long they are and wherever the pieces end.

A line longer than the limit is never held: its end is looked for while it is read and thrown away, and only its
beginning and its last bytes are kept, since the id of the request that it answers stands in one of them. That is not
done for ever: see `Lines.endless`.
"""

from __future__ import annotations

import re
from typing import final

HEAD = 256
TAIL = 128

JUNK = 1024 * 1024
"""Bytes that are no messages, in a row, after which their writer is taken for no MCP server."""

ENDLESS = 8
LONGEST = 64 * 1024 * 1024
"""Times the limit, or these bytes if that is more, that a line may be long which is thrown away. It has no end if it
goes on after that."""

_VERSION = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ANSWER = rb'"(?:result|error)"\s*:'  # a request of the server's has an id as well, which may be one of ours
_ID_FIRST = re.compile(rb"\s*\{\s*" + _VERSION + rb'"id"\s*:\s*(\d+)\s*,\s*' + _VERSION + _ANSWER)
_ANSWER_FIRST = re.compile(rb"\s*\{\s*" + _VERSION + _ANSWER)
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class TooLong:
    """Stands for a line that was too long.

    Attributes:
        size: its bytes, without the newline.
        id: of the request that it answers, if that can be told.
    """

    __slots__ = ("id", "size")

    def __init__(self, size: int, head: bytes, tail: bytes) -> None:
        self.size = size
        self.id = id_in(head, tail)


def id_in(head: bytes, tail: bytes) -> int | None:
    """The id of the request that a line answers, from its beginning and its end; None if it isn't seen there."""
    found = _ID_FIRST.match(head) or (_ANSWER_FIRST.match(head) and _ID_LAST.search(tail))
    return int(found[1]) if found else None


@final
class Lines:
    """Feed it what was read; it gives back the lines that are whole, without their newlines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []  # of the line that is not whole yet
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that end in `data`, in order."""
        if not self._size and data.count(b"\n") == 1 and data[-1:] == b"\n":
            return [data] if len(data) <= self._limit else [TooLong(len(data) - 1, data[:HEAD], data[-TAIL:])]
        *ends, rest = data.split(b"\n")
        lines: list[bytes | TooLong] = []
        for end in ends:
            self._add(end)
            lines.append(self._line())
        self._add(rest)
        return lines

    @property
    def endless(self) -> bool:
        """Whether the line under way has no end: it is far too long, or long and does not even begin as a message."""
        if self._size <= JUNK:
            return False
        return self._size > max(ENDLESS * self._limit, LONGEST) or self.beginning.lstrip()[:1] not in (b"{", b"[")

    @property
    def beginning(self) -> bytes:
        """Of the line that is under way."""
        return self._head or b"".join(self._pieces[:1])[:HEAD]

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
            return
        if self._pieces or not self._head:
            self._pieces.append(piece)
            whole = b"".join(self._pieces)
            self._head, self._tail = whole[:HEAD], whole[-TAIL:]
            self._pieces.clear()
        else:
            self._tail = (self._tail + piece)[-TAIL:]

    def _line(self) -> bytes | TooLong:
        whole = self._size <= self._limit
        line = b"".join(self._pieces) if whole else TooLong(self._size, self._head, self._tail)
        self._pieces.clear()
        self._size = 0
        self._head = self._tail = b""
        return line
