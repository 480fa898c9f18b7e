"""Server-sent events: bytes in, events out.

The format is https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream. Lines end
with CR, LF or CRLF, and the bytes may be split anywhere, between the CR and the LF and inside a character too.
`id` and `retry` serve reconnecting clients, which a model's reply can't have, so they are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...protocol.errors import UpstreamError

MAX_EVENT = 16 * 1024 * 1024
"""Bytes an unfinished event may grow to; a server that sends more is broken or hostile."""


class SseEvent(msgspec.Struct, frozen=True):
    """One event. `kind` is its `event:` field, `message` if it has none; `data` its lines joined by LF."""

    kind: str
    data: str


class SseParser:
    """Feed it bytes; it gives back the events that are complete."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._after_cr = False
        self._first = True
        self._kind = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[SseEvent]:
        """The events that `data` completes, in order. An event without data is none.

        Raises:
            UpstreamError: an event grows beyond `MAX_EVENT`.
        """
        for line in self._lines(data):
            if line:
                self._field(line)
            elif self._data:
                yield self._dispatch()
            else:
                self._kind = ""

    def _lines(self, data: bytes) -> Iterator[bytes]:
        """Complete lines, without their ends. A CR ends its line at once; an LF right behind it is skipped."""
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 0x0A:
                data = data[1:]
        pieces = data.splitlines(keepends=True) if data else []
        for piece in pieces:
            self._line += piece
            if len(self._line) + self._size > MAX_EVENT:
                raise UpstreamError(f"the server sent an event of more than {MAX_EVENT} bytes")
            end = piece[-1]
            if end not in (0x0A, 0x0D):
                continue
            if end == 0x0D:
                self._after_cr = piece is pieces[-1]
            line = bytes(self._line).rstrip(b"\r\n")
            self._line.clear()
            if self._first:
                line = line.removeprefix(b"\xef\xbb\xbf")
                self._first = False
            yield line

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        elif name == b"event":
            self._kind = value.decode("utf-8", errors="replace")

    def _dispatch(self) -> SseEvent:
        event = SseEvent(self._kind or "message", b"\n".join(self._data).decode("utf-8", errors="replace"))
        self._kind, self._data, self._size = "", [], 0
        return event
