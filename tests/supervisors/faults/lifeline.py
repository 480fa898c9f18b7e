"""Proof of life and of death, without polling pids: a fifo that ends when the last process that holds it is dead.

A process opens the fifo for writing and keeps it; whatever it starts inherits it. The kernel closes it on death,
however that comes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import trio

from callboard.supervisors.pipes import ProcessOutput


class Lifeline:
    """The test's end of one fifo, made at `path`."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._stream = ProcessOutput(self._fd)

    async def heard(self, words: Iterable[str]) -> None:
        """Wait until all these words were written to it."""
        await trio.lowlevel.wait_readable(self._fd)  # before its first writer, a fifo reads as ended
        await heard(self._stream, words)

    async def silent(self) -> None:
        """Wait until nobody holds it; at once if nobody ever did."""
        while await self._stream.receive_some():
            pass

    async def aclose(self) -> None:
        """Close and remove it."""
        await self._stream.aclose()
        Path(self.path).unlink()


async def heard(stream: trio.abc.ReceiveStream, words: Iterable[str]) -> None:
    """Wait until all these words have come."""
    text = b""
    while not set(words) <= set(text.decode().split()):
        data = await stream.receive_some()
        assert data, f"it ended after {text!r}, without {words}"
        text += data
