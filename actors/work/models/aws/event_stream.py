"""Parser of AWS event streams: binary messages with headers and two checksums each.

    total length (4), length of the headers (4), CRC of these (4), headers, payload, CRC of all before (4)

A header is the length of its name (1), the name, a type (1) and a value. All numbers are big-endian; the CRC is zlib's
CRC-32.
Source: the Smithy specification of `application/vnd.amazon.eventstream`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from zlib import crc32

import msgspec

from .....protocol.errors import UpstreamError

MOST = 24 * 1024 * 1024
"""Maximum size of a message in bytes, which is AWS's own limit of a payload."""

_PRELUDE = struct.Struct("!III")
_CRC = struct.Struct("!I")
_LENGTH = struct.Struct("!H")
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Sizes of header values in bytes by type: true, false, integers, a time, a UUID. Types 6 and 7 state their length."""

_TEXT = 7


class EventStreamMessage(msgspec.Struct, frozen=True):
    """Message of a stream. `headers` contains only the headers with text values."""

    headers: dict[str, str]
    payload: bytes


class EventStreamParser:
    """Incremental parser of a stream: call `feed` with bytes as they arrive."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[EventStreamMessage]:
        """Yield the messages that `data` completes. Raises UpstreamError if the stream is damaged."""
        self._rest += data
        while len(self._rest) >= _PRELUDE.size:
            total, headers, checksum = _PRELUDE.unpack_from(self._rest)
            # Checked first: a damaged length would make the parser wait for bytes that never arrive.
            if crc32(self._rest[:8]) != checksum:
                raise UpstreamError("the stream is damaged: the checksum of a message's lengths does not fit")
            if total > MOST or total < _PRELUDE.size + headers + _CRC.size:
                raise UpstreamError(f"the stream is damaged: a message of {total} bytes with {headers} of headers")
            if len(self._rest) < total:
                return
            message = bytes(self._rest[:total])
            del self._rest[:total]
            if crc32(message[:-4]) != _CRC.unpack(message[-4:])[0]:
                raise UpstreamError("the stream is damaged: the checksum of a message does not fit")
            begin = _PRELUDE.size + headers
            yield EventStreamMessage(_headers(message[_PRELUDE.size : begin]), message[begin:-4])


def _headers(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name = data[at + 1 : at + 1 + data[at]].decode()
            at += 1 + data[at]
            kind = data[at]
            at += 1
            if kind in _SIZES:
                at += _SIZES[kind]
                continue
            size = _LENGTH.unpack_from(data, at)[0]
            at += _LENGTH.size
            if kind == _TEXT:
                found[name] = data[at : at + size].decode()
            elif kind != _TEXT - 1:
                raise ValueError(f"type {kind}")
            at += size
        if at > len(data):
            raise ValueError("it ends too early")
    except (IndexError, struct.error, ValueError) as error:  # wrong UTF-8 is a ValueError
        raise UpstreamError(f"the stream is damaged: a header can't be read ({error})") from error
    return found
