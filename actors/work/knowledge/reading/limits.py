"""Limits of size and time when a source is read, and the error `CantRead`."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import trio

MIB = 1024 * 1024
TOO_MUCH = "more text than is read of one source"


class CantRead(Exception):
    """The source can't be read.

    The text gives the reason and possible fixes; the caller adds the name of the source.
    """


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for reading one source.

    Attributes:
        text: bytes of a text file, and of the text extracted from any other file.
        packed: bytes of a file with compressed text: PDF, Office.
        unpacked: total bytes of the decompressed parts of such a file.
        ratio: most growth of a part by decompression; small parts are exempt.
        entries: most parts of such a file.
        seconds: time for converting one file to text.
    """

    text: int = 50 * MIB
    packed: int = 100 * MIB
    unpacked: int = 256 * MIB
    ratio: int = 200
    entries: int = 10_000
    seconds: float = 60.0


def watch(seconds: float) -> Callable[[], None]:
    """Return a function that checks time and cancellation; call it regularly in a trio thread.

    It raises CantRead when the time is up, and trio.Cancelled when the caller is cancelled.
    """
    until = time.monotonic() + seconds

    def check() -> None:
        trio.from_thread.check_cancelled()
        if time.monotonic() > until:
            raise CantRead(f"reading the document took more than {seconds:g} s")

    return check


def megabytes(size: int) -> str:
    """Return a size in bytes as text in MB, for messages."""
    return f"{size / MIB:.0f} MB" if size >= 10 * MIB else f"{size / MIB:.1f} MB"
