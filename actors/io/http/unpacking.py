"""Decompresses bodies in small pieces. We never ask for compression; some servers compress all the same."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import httpx

UNPACKED = 64 * 1024
"""Bytes that are unpacked at a time, since a kilobyte on the wire may hold a megabyte."""


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
