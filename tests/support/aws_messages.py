"""Messages in AWS's binary format, as Bedrock sends them."""

from __future__ import annotations

import json
import struct
from typing import Any
from zlib import crc32


def message(
    headers: dict[str, str] | bytes, payload: bytes, *, total: int | None = None, headers_length: int | None = None
) -> bytes:
    """One message; `total` and `headers_length` are lies."""
    raw = headers if isinstance(headers, bytes) else b"".join(_header(*header) for header in headers.items())
    length = len(raw) if headers_length is None else headers_length
    prelude = struct.pack("!II", 16 + len(raw) + len(payload) if total is None else total, length)
    data = prelude + struct.pack("!I", crc32(prelude)) + raw + payload
    return data + struct.pack("!I", crc32(data))


def event(kind: str, **fields: Any) -> bytes:
    """An event of a stream, padded as the service pads them."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return message(headers, json.dumps({**fields, "p": "abcdefghijk"}).encode())


def exception(kind: str, text: str) -> bytes:
    """What ends a stream that failed."""
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return message(headers, json.dumps({"message": text}).encode())


def _header(name: str, value: str) -> bytes:
    text = value.encode()
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(text)) + text
