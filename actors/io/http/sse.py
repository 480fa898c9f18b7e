"""Server-sent events: bytes in, events out, and the other way round.

The format is https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream. Lines end
with CR, LF or CRLF, and the bytes may be split anywhere, between the CR and the LF and inside a character too.
`id` and `retry` are for clients that reconnect: a model's reply can't be taken up again, a stream of MCP can.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ....protocol.errors import UpstreamError

MAX_EVENT = 16 * 1024 * 1024
"""Bytes an unfinished event may grow to; a server that sends more is broken or hostile."""

PING = b": ping\n\n"
PING_EVERY = 15.0
"""Seconds of silence after which a client is shown that we are still there."""

HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
"""Of a reply that is a stream of events, which proxies must not keep or change."""


def event(data: bytes, *, name: str = "", id: int | None = None) -> bytes:
    """One event as it is written; `data` is JSON, so it has no line breaks."""
    head = b"" if id is None else b"id: %d\n" % id
    if name:
        head += b"event: " + name.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"


class SseEvent(msgspec.Struct, frozen=True):
    """One event. `kind` is its `event:` field, `message` if it has none; `data` its lines joined by LF."""

    kind: str
    data: str


class SseParser:
    """Feed it bytes; it gives back the events that are complete.

    Args:
        limit: bytes an unfinished event may grow to; None for `MAX_EVENT`.

    Attributes:
        last_id: the id of the last event that came with one, once it was complete; "" if none did.
        retry: seconds that the server wants a client to wait before it reconnects; None if it didn't say.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.last_id = ""
        self.retry: float | None = None
        self._limit = limit or MAX_EVENT
        self._id: bytes | None = None
        self._line = bytearray()
        self._after_cr = False
        self._first = True
        self._kind = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[SseEvent]:
        """The events that `data` completes, in order. An event without data is none.

        Raises:
            UpstreamError: an event grows beyond the limit.
        """
        for line in self._lines(data):
            if line:
                self._field(line)
                continue
            if self._id is not None:
                self.last_id, self._id = self._id.decode("utf-8", errors="replace"), None
            if self._data:
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
            if len(self._line) + self._size > self._limit:
                raise UpstreamError(f"the server sent an event of more than {self._limit} bytes")
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
            self._size += len(value) + 1  # with its LF, so that empty lines have an end, too
        elif name == b"event":
            self._kind = value.decode("utf-8", errors="replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry = int(value) / 1000

    def _dispatch(self) -> SseEvent:
        event = SseEvent(self._kind or "message", b"\n".join(self._data).decode("utf-8", errors="replace"))
        self._kind, self._data, self._size = "", [], 0
        return event
