"""The last words of a process: a bounded tail of what it wrote to stderr, and its lines as they come."""

from __future__ import annotations

from collections.abc import Callable

LIMIT = 32 * 1024
"""Bytes kept."""

LINE = 8 * 1024
"""A longer line is handed on in pieces of this many bytes."""


class Tail:
    """Takes chunks of any size, keeps the last `LIMIT` bytes, tells `on_line` each line without its newline."""

    def __init__(self, on_line: Callable[[str], None] | None = None, limit: int = LIMIT) -> None:
        self._kept = bytearray()
        self._line = bytearray()
        self._cut = False
        self._limit = limit
        self._on_line = on_line

    def feed(self, data: bytes) -> None:
        """The process wrote this."""
        self._kept += data
        if len(self._kept) > self._limit:
            del self._kept[: -self._limit]
            self._cut = True
        if self._on_line is not None:
            self._tell(data, self._on_line)

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
