"""HTTP/1.1 as bytes: request writer and response parser, without I/O.

The parser is `httptools` (llhttp, strict: ambiguous framing is refused). A reader parses exactly one response, so no
state can leak to the next one; any bytes after that response make the connection unusable. Requests never ask for
compression. Some servers compress anyway, and their bodies are decompressed in small pieces.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterator
from functools import lru_cache

import httptools
import httpx

MAX_HEAD = 128 * 1024
"""Maximum bytes of a response apart from its body, between two pieces of the body."""

UNPACKED = 64 * 1024
"""Bytes decompressed at a time, because a kilobyte on the wire may contain a megabyte."""

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_CONTROL = re.compile(rb"[\x00\r\n]").search


def request_head(method: str, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a request's first line and headers, up to the empty line that ends them.

    Raises:
        httpx.LocalProtocolError: a control character, or a blank in the target, would end its line early.
    """
    return _request_line(method, target) + b"".join([_field(name, value) for name, value in headers]) + b"\r\n"


# Agents send the same line and nearly the same fields repeatedly. Validating a field takes three calls; a thousand
# agents with ten fields each spent a fortieth of their processor time on it.
@lru_cache(maxsize=512)
def _request_line(method: str, target: bytes) -> bytes:
    line = b"%b %b HTTP/1.1" % (method.encode("ascii"), target)
    if _CONTROL(line) is not None or b" " in target:
        raise httpx.LocalProtocolError("the URL of the request contains a character that is not allowed in URLs")
    return line + b"\r\n"


@lru_cache(maxsize=512)
def _field(name: bytes, value: bytes) -> bytes:
    if _TOKEN(name) is None or _CONTROL(value) is not None:
        raise httpx.LocalProtocolError(
            f"the header {name!r} can't be sent: its name or value contains a character that is not allowed in headers"
        )
    return b"%b: %b\r\n" % (name, value)


class ResponseReader:
    """Parser of one response: feed it until `headed`, consume `chunks` as they arrive, and continue until `complete`.

    Attributes:
        headers: fields of the final response, as received.
        fields: values by lower-case name; the last one of a repeated name.
        headed: True once status and headers of the final response are known (1xx ones are skipped).
        complete: True once the whole response was parsed.
        reusable: once complete, True if the connection can carry another request.
        chunks: pieces of the body that were not consumed yet.
    """

    def __init__(self, *, bodiless: bool = False) -> None:
        self.status = 0
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.fields: dict[bytes, bytes] = {}
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
        """Parse received bytes; empty bytes mean the end of the connection.

        Raises:
            httpx.RemoteProtocolError: the response is invalid, or ended too early.
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
            raise httpx.RemoteProtocolError(
                "the server switched to another protocol (HTTP 101), although the request did not ask for that"
            ) from error
        except httptools.HttpParserError as error:
            if not self.complete:
                raise httpx.RemoteProtocolError(f"the server's response is not HTTP: {error}") from error
            self.reusable = False
        if self._overhead > MAX_HEAD:
            raise httpx.RemoteProtocolError(f"the server sent more than {MAX_HEAD} bytes of headers")
        if self.complete:
            self._parser = None  # break the reference cycle, so that no garbage collection is needed

    def _end_of_wire(self) -> None:
        self._parser = None
        if self.complete:
            self.reusable = False
        elif self.headed and not self._framed:
            self.complete = True
        elif self.headed:
            raise httpx.RemoteProtocolError("the server closed the connection in the middle of its response")
        else:
            raise httpx.RemoteProtocolError("the server closed the connection without a response")

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
        fields = self.fields = {name.lower(): value for name, value in self.headers}
        # llhttp refuses a response with contradictory length fields.
        self._framed = (
            status in (204, 304)
            or b"content-length" in fields
            or (b"transfer-encoding" in fields and fields[b"transfer-encoding"].lower().endswith(b"chunked"))
        )
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


def unpacker_of(encoding: str) -> zlib._Decompress | None:
    """Return a decompressor for a response body in this content encoding; None for none and for an unknown one."""
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        return None  # not compressed; or in an unknown format, which the body's reader reports
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32: detects gzip and zlib headers


def unpacked(unpacker: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yield the decompressed data of the next piece, in small parts.

    Raises:
        httpx.DecodingError: it is not compressed as declared.
    """
    try:
        while not unpacker.eof and (part := unpacker.decompress(data, UNPACKED)):
            yield part
            data = unpacker.unconsumed_tail
    except zlib.error as error:
        raise httpx.DecodingError(str(error)) from error
