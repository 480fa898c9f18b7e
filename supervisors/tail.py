"""The last words of a process: a bounded tail of what it wrote to stderr, and its lines as they come."""

from __future__ import annotations

from collections.abc import Callable

import trio

LIMIT = 32 * 1024
"""Bytes kept."""

LINE = 8 * 1024
"""A longer line is handed on in pieces of this many bytes."""

_FEEDING = 4 * 1024
"""Bytes whose lines are handed on before other tasks get their turn."""


class Tail:
    """Takes chunks of any size, keeps the last of them, and hands on each line without its newline.

    Args:
        on_line: called with each line.
        limit: bytes that are kept.
        most: bytes whose lines are handed on; None for all. A last line says that there was more.

    Attributes:
        overflowed: set once there were more than `most` bytes.
    """

    def __init__(
        self, on_line: Callable[[str], None] | None = None, *, limit: int = LIMIT, most: int | None = None
    ) -> None:
        self.overflowed = trio.Event()
        self._kept = bytearray()
        self._line = bytearray()
        self._cut = False
        self._limit = limit
        self._on_line = on_line
        self._most = most
        self._left = most

    async def pump(self, data: bytes) -> None:
        """Take what the process wrote, with a checkpoint after every few KiB if somebody is told its lines.

        Cancelled, it takes all of `data` at once: the last words of a process are worth most.
        """
        size = len(data) if self._on_line is None else _FEEDING
        taken = 0
        while taken < len(data):
            self.feed(data[taken : taken + size])
            taken += size
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                self.feed(data[taken:])
                raise

    def feed(self, data: bytes) -> None:
        """Take what the process wrote."""
        self._kept += data
        if len(self._kept) > self._limit:
            del self._kept[: -self._limit]
            self._cut = True
        if self.overflowed.is_set():
            return
        if self._left is not None:
            data, self._left = data[: self._left], self._left - len(data)
        if self._on_line is not None:
            self._tell(data, self._on_line)
        if self._left is not None and self._left < 0:
            self._overflow()

    def close(self) -> None:
        """The process wrote all it will: its last line may lack a newline."""
        if self._line and self._on_line is not None:
            self._on_line(_text(self._line))
            self._line.clear()

    @property
    def text(self) -> str:
        """What is kept, beginning with a whole line if the beginning was lost."""
        kept = bytes(self._kept)
        if self._cut and b"\n" in kept[:-1]:
            kept = kept[kept.index(b"\n") + 1 :]
        return _text(kept)

    def _overflow(self) -> None:
        assert self._most is not None
        self.overflowed.set()
        self.close()
        if self._on_line is not None:
            self._on_line(f"[more than {self._most // 1024} KiB on stderr: the rest is not shown]")

    def _tell(self, data: bytes, on_line: Callable[[str], None]) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._line += line
            self._pieces(on_line)
            on_line(_text(self._line))
            self._line.clear()
        self._line += rest
        self._pieces(on_line)

    def _pieces(self, on_line: Callable[[str], None]) -> None:
        while len(self._line) > LINE:
            on_line(_text(self._line[:LINE]))
            del self._line[:LINE]


def _text(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")
