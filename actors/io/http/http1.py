"""HTTP/1.1 as bytes: requests written, responses read. Nothing here waits for anything.

Reading is `httptools` (llhttp, strict: ambiguous framing is refused). A reader serves exactly one response, so no
state can leak from one to the next; whatever comes after that response makes the connection unusable. We never ask
for compression; some servers compress all the same, and their bodies are decompressed in small pieces.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterator

import httptools
import httpx

MAX_HEAD = 128 * 1024
"""Bytes that a response may spend on anything but its body, from one piece of the body to the next."""

UNPACKED = 64 * 1024
"""Bytes that are unpacked at a time, since a kilobyte on the wire may hold a megabyte."""

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_CONTROL = re.compile(rb"[\x00\r\n]").search


def request_head(method: str, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The request line and the headers, up to and with the empty line.

    Raises:
        httpx.LocalProtocolError: something in them would break out of its line.
    """
    lines = [b"%b %b HTTP/1.1" % (method.encode("ascii"), target)]
    for name, value in headers:
        if _TOKEN(name) is None or _CONTROL(value) is not None:
            raise httpx.LocalProtocolError(f"the header {name!r} can't be sent: a character that is not allowed")
        lines.append(b"%b: %b" % (name, value))
    if _CONTROL(lines[0]) is not None or b" " in target:
        raise httpx.LocalProtocolError("the request's URL holds a character that is not allowed")
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


class ResponseReader:
    """Reads one response: feed it until `headed`, take `chunks` as they come, go on until `complete`.

    Attributes:
        headed: status and headers of the final response are there (1xx ones are skipped).
        complete: the whole response has been read.
        reusable: once complete, whether the connection may carry another request.
        chunks: pieces of the body that the reader has not taken.
    """

    def __init__(self, *, bodiless: bool = False) -> None:
        self.status = 0
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.headed = False
        self.complete = False
        self.reusable = False
        self.chunks: deque[bytes] = deque()
        self._bodiless = bodiless
        self._interim = False
        self._framed = False
        self._overhead = 0
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take what came from the wire; no bytes at all mean its end.

        Raises:
            httpx.RemoteProtocolError: this is no valid response, or it ended too early.
        """
        if not data:
            self._end_of_wire()
            return
        parser = self._parser
        if parser is None:
            self.reusable = False
            return
        self._overhead += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise httpx.RemoteProtocolError("the server switched protocols without being asked") from error
        except httptools.HttpParserError as error:
            if not self.complete:
                raise httpx.RemoteProtocolError(f"the server's answer is not HTTP: {error}") from error
            self.reusable = False
        if self._overhead > MAX_HEAD:
            raise httpx.RemoteProtocolError(f"the server sent more than {MAX_HEAD} bytes of headers")
        if self.complete:
            self._parser = None  # it refers to us: without this only the garbage collector frees both

    def _end_of_wire(self) -> None:
        self._parser = None
        if self.complete:
            self.reusable = False
        elif self.headed and not self._framed:
            self.complete = True
        elif self.headed:
            raise httpx.RemoteProtocolError("the server closed the connection in the middle of its answer")
        else:
            raise httpx.RemoteProtocolError("the server closed the connection without an answer")

    # --- called by httptools

    def on_message_begin(self) -> None:
        if self.complete:
            self.reusable = False

    def on_status(self, reason: bytes) -> None:
        if not self.complete:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.headed:  # later ones are trailers
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._interim = True
            self.headers.clear()
            self.reason = b""
            return
        self.status = status
        self.headed = True
        self._overhead = 0
        self._framed = status in (204, 304) or any(_frames(name, value) for name, value in self.headers)
        if self._bodiless:
            self.complete = True
            self.reusable = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        if self.complete:
            self.reusable = False
        else:
            self.chunks.append(body)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif not self.complete and self._parser is not None:
            self.complete = True
            self.reusable = self._parser.should_keep_alive()


def _frames(name: bytes, value: bytes) -> bool:
    """Whether this header tells where the body ends."""
    name = name.lower()
    return name == b"content-length" or (name == b"transfer-encoding" and value.lower().endswith(b"chunked"))


def unpacker_of(encoding: str) -> zlib._Decompress | None:
    """What unpacks a body. Not httpx's way, which unpacks all of a piece at once, however much that is."""
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return None  # not packed; or in an unknown way, which the reader of the body reports
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32: it finds out by itself which of the two it is


def unpacked(unpacker: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """What is in the next piece of a compressed body, a little at a time.

    Raises:
        httpx.DecodingError: it is not compressed as was said.
    """
    try:
        while not unpacker.eof and (part := unpacker.decompress(data, UNPACKED)):
            yield part
            data = unpacker.unconsumed_tail
    except zlib.error as error:
        raise httpx.DecodingError(str(error)) from error
