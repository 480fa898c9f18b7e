"""Server-sent events: parser and writer.

The format is https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream. Lines end with CR,
LF or CRLF, and the bytes may be split anywhere, even between CR and LF and inside a character. `id` and `retry` are for
clients that reconnect: a model's reply can't be resumed, a stream of MCP can.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ....protocol.errors import UpstreamError

MAX_EVENT = 16 * 1024 * 1024
"""Maximum bytes of an incomplete event; a server that sends more is broken or hostile."""

PING = b": ping\n\n"
PING_EVERY = 15.0
"""Seconds of silence after which a ping shows the client that the server is alive."""

HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
"""Headers of an event stream, which proxies must not cache or change."""


def event(data: bytes, *, name: str = "", id: int | None = None) -> bytes:
    """Encode an event; `data` is JSON, so it has no line breaks."""
    head = b"" if id is None else b"id: %d\n" % id
    if name:
        head += b"event: " + name.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"


class SseEvent(msgspec.Struct, frozen=True):
    """Parsed event. `kind` is its `event:` field, default `message`; `data` its lines joined by LF."""

    kind: str
    data: str


class SseParser:
    """Incremental parser that returns complete events.

    Args:
        limit: maximum bytes of an incomplete event; None for `MAX_EVENT`.

    Attributes:
        last_id: id of the last complete event with one; "" if there was none.
        retry: seconds that a client should wait before it reconnects; None if the server gave none.
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
        """Yield the events that `data` completes, in order. Events without data are dropped.

        Raises:
            UpstreamError: an event exceeds the limit.
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

    def rest(self) -> Iterator[SseEvent]:
        """Yield the event at the end of the stream, for servers that omit its last line end or blank line.

        The specification discards it: only its data can show whether it is complete.
        """
        if self._line:
            self._field(bytes(self._line).removeprefix(b"\xef\xbb\xbf" if self._first else b""))
            self._line.clear()
        if self._data:
            yield self._dispatch()

    def _lines(self, data: bytes) -> Iterator[bytes]:
        """Yield complete lines without their ends. A CR ends its line at once; an LF directly after it is skipped."""
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
            self._size += len(value) + 1  # including its LF, so that empty lines are limited too
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
