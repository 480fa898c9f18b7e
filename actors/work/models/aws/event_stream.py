"""AWS's event streams: messages with headers, in binary, each with two checksums.

    total length (4), length of the headers (4), CRC of these (4), headers, payload, CRC of all before (4)

A header is the length of its name (1), the name, a type (1) and a value. Big-endian throughout; CRC-32 as in zlib.
Source: the Smithy specification of `application/vnd.amazon.eventstream`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from zlib import crc32

import msgspec

from .....protocol.errors import UpstreamError

MOST = 24 * 1024 * 1024
"""Bytes of a message; AWS's own bound of a payload."""

_PRELUDE = struct.Struct("!III")
_CRC = struct.Struct("!I")
_LENGTH = struct.Struct("!H")
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value by its type: true, false, integers, a time, a UUID. Types 6 and 7 bring their length."""

_TEXT = 7


class Message(msgspec.Struct, frozen=True):
    """One message. `headers` has those that are texts."""

    headers: dict[str, str]
    payload: bytes


class EventStreamParser:
    """Cuts a stream into messages: feed it bytes as they come."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that `data` completes. Raises UpstreamError if bytes were changed on their way."""
        self._rest += data
        while len(self._rest) >= _PRELUDE.size:
            total, headers, checksum = _PRELUDE.unpack_from(self._rest)
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
            yield Message(_headers(message[_PRELUDE.size : begin]), message[begin:-4])


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
