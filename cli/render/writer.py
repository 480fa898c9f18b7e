"""Lines to a stream whose reader may be slow, or stand still: written by a thread, so that no run waits for it.

What the reader has not taken yet is kept, up to `MOST` bytes; a reader that far behind counts as gone. The thread
writes to the file descriptor itself: a thread that is stuck inside a Python stream would hold its lock and keep
the interpreter from ending.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TextIO

MOST = 64 * 1024 * 1024


def from_any_thread(callback: Callable[[], None]) -> Callable[[], None]:
    """For `on_error`: has `callback` called in the trio run that is now, and not at all once that is over."""
    import trio

    token = trio.lowlevel.current_trio_token()

    def call() -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(callback)

    return call


class LineWriter:
    """Writes text in order, in the background.

    Attributes:
        error: why nothing more can be written, or None.
    """

    def __init__(self, stream: TextIO) -> None:
        self.error: OSError | None = None
        self.on_error: Callable[[], None] | None = None
        """Called once when nothing more can be written, maybe in the writing thread. Must be quick."""
        self._stream = stream
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        # Two counts, each changed by one thread alone: a single one would lose what both threads do to it at once.
        self._taken = 0
        self._written = 0
        self._thread: threading.Thread | None = None

    @property
    def behind(self) -> int:
        """Bytes that were taken over and are not written yet."""
        return self._taken - self._written

    def put(self, text: str) -> None:
        """Take over some text; never waits, never raises. All text comes from one thread."""
        if self.error is not None:
            return
        data = text.encode("utf-8", "surrogateescape")
        self._taken += len(data)
        if self.behind > MOST:
            self._fail(OSError(errno.ENOBUFS, f"the reader is more than {MOST // 2**20} MiB behind"))
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="stdout", daemon=True)
            self._thread.start()
        self._queue.put(data)

    def finish(self, timeout: float | None = None) -> None:
        """Wait until all is written, at most `timeout` seconds.

        Raises:
            OSError: it can't be written; `BrokenPipeError` if nobody reads any more.
        """
        if self._thread is not None and self.error is None:
            self._queue.put(None)
            self._thread.join(timeout)
        if self.error is not None:
            raise self.error

    def _write(self) -> None:
        try:
            number: int | None = self._stream.fileno()
        except (AttributeError, io.UnsupportedOperation):
            number = None
        while (data := self._queue.get()) is not None:
            try:
                if number is None:
                    self._stream.write(data.decode("utf-8", "surrogateescape"))
                    self._stream.flush()
                else:
                    view = memoryview(data)
                    while view:
                        view = view[os.write(number, view) :]
            except OSError as error:
                self._fail(error)
                return
            self._written += len(data)

    def _fail(self, error: OSError) -> None:
        self.error = error
        if self.on_error is not None:
            self.on_error()
