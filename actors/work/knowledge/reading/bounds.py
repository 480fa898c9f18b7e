"""Limits on bytes and time when a source is read; and the one error of this room."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import trio

MIB = 1024 * 1024
TOO_MUCH = "there is more text in it than is read of one source"


class CantRead(Exception):
    """The source can't be read. The text says why, and what would help; the caller knows which source it is."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        text: bytes of a text file, and of the text that any other file may turn into.
        packed: bytes of a file that holds its text packed: PDF, Office.
        unpacked: bytes that the parts of such a file may unpack to, all together.
        ratio: how many times larger than itself a part may become; small parts don't count.
        entries: parts of such a file.
        seconds: for turning one file into text.
    """

    text: int = 50 * MIB
    packed: int = 100 * MIB
    unpacked: int = 256 * MIB
    ratio: int = 200
    entries: int = 10_000
    seconds: float = 60.0


def watch(seconds: float) -> Callable[[], None]:
    """To be called now and then in a thread of trio's: it looks at the clock, and at who waits for us.

    It raises CantRead when the time is up, and trio.Cancelled when the caller gave up.
    """
    until = time.monotonic() + seconds

    def look() -> None:
        trio.from_thread.check_cancelled()
        if time.monotonic() > until:
            raise CantRead(f"it took more than {seconds:g} s to be read")

    return look


def megabytes(size: int) -> str:
    """A size for people."""
    return f"{size / MIB:.0f} MB" if size >= 10 * MIB else f"{size / MIB:.1f} MB"
