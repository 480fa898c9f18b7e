"""Writes to a terminal without losing a part of it.

A terminal may be slow, stopped (Ctrl-S), or set by another program not to block (`O_NONBLOCK` belongs to the
terminal, not to a process): then a write takes a part and fails with EAGAIN, and a Python stream forgets the rest. So
the bytes go to its file descriptor, and what was not taken waits until there is room.

`ready` tells beforehand whether there is room. A picture of an answer that grows can be left out, so a stopped terminal
holds no run up while its model speaks, but at the end of the answer.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

_GIVEN_UP = 100
"""Milliseconds that a terminal has to take what puts it right after a write that was broken off."""


class TerminalWriter:
    """A terminal to write to.

    Args:
        stream: the terminal.
        restore: puts the terminal right after a write that was broken off in the middle.

    Attributes:
        error: why something could not be written, or None; nothing more is after it.
    """

    def __init__(self, stream: TextIO, restore: str = "") -> None:
        self.error: OSError | None = None
        self._stream = stream
        self._restore = restore
        try:
            self._number: int | None = stream.fileno()
        except (AttributeError, OSError, ValueError):  # it has none
            self._number = None

    def ready(self, wait: float | None = 0) -> bool:
        """Whether it takes something now, or within `wait` milliseconds; None for any time."""
        if self._number is None:
            return True
        poll = select.poll()
        poll.register(self._number, select.POLLOUT)
        return bool(poll.poll(wait))

    def write(self, text: str) -> None:
        """Writes all of it; waits for room. Nothing happens if the terminal has gone: the run finds out by itself."""
        if self.error is not None:
            return
        whole = False
        try:
            self._write(text, lambda: self.ready(None))
            whole = True
        except OSError as error:
            self.error = error
        finally:
            if not whole and self._restore and self.ready(_GIVEN_UP):
                with suppress(OSError):
                    self._write(self._restore, lambda: self.ready(_GIVEN_UP))

    def _write(self, text: str, wait: Callable[[], bool]) -> None:
        if self._number is None:
            self._stream.write(text)
            self._stream.flush()
            return
        view = memoryview(text.encode(getattr(self._stream, "encoding", None) or "utf-8", "replace"))
        flushed = False
        while view:
            try:
                if not flushed:
                    self._stream.flush()  # what others have written to it stands before this
                    flushed = True
                view = view[os.write(self._number, view) :]
            except BlockingIOError:
                if not wait():
                    raise
