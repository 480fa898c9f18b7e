"""Terminal writes that lose no part of the output.

A terminal may be slow, stopped (Ctrl-S), or switched to non-blocking by another program (`O_NONBLOCK` belongs to the
terminal, not to a process). A write then accepts a part and fails with EAGAIN, and a Python stream drops the rest. So
the bytes go to the file descriptor, and the rest waits until the terminal accepts it.

`ready` reports beforehand whether a write would block. A picture of a growing answer can be skipped. So a stopped
terminal blocks a run only at the end of the answer, not while its model streams.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

_GIVEN_UP = 100
"""Milliseconds that a terminal gets to accept the restore sequence after an interrupted write."""


class TerminalWriter:
    """Writer for one terminal.

    Args:
        stream: terminal.
        restore: sequence that resets the terminal after an interrupted write.
    Attributes:
        error: the first write error, or None; after it nothing is written.
    """

    def __init__(self, stream: TextIO, restore: str = "") -> None:
        self.error: OSError | None = None
        self._stream = stream
        self._restore = restore
        try:
            self._number: int | None = stream.fileno()
        except (AttributeError, OSError, ValueError):  # the stream has no file descriptor
            self._number = None

    def ready(self, wait: float | None = 0) -> bool:
        """Return True if the terminal accepts output within `wait` milliseconds; None waits without limit."""
        if self._number is None:
            return True
        poll = select.poll()
        poll.register(self._number, select.POLLOUT)
        return bool(poll.poll(wait))

    def write(self, text: str) -> None:
        """Write the whole text; blocks until the terminal accepts it. Errors are stored in `error` and not raised."""
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
                    self._stream.flush()  # earlier output of the stream must come first
                    flushed = True
                view = view[os.write(self._number, view) :]
            except BlockingIOError:
                if not wait():
                    raise
