"""The thread that writes down what happens in the runs of a process. The event loop never waits for the disk.

Lines are put into a queue in memory. The first of them wakes the thread, which lets a few more gather and then writes
everything at once, file by file. What can't be written (the disk is full) costs the log of its run, which is told
once; so does a disk that stands still while more than `BACKLOG` bytes wait. The run itself goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from ....supervisors.tally import Tally
from .files import EVENTS, Kept, make_private, write_kept

GATHER = 0.05
"""Seconds in which lines gather before they are written."""

BACKLOG = 64 * 1024 * 1024
"""Bytes that may wait for the disk."""

OPEN_FILES = 64
"""How many logs are held open; the others are opened again when there is something to write."""

log = logging.getLogger("callboard.control")


class LogFile:
    """The log of one run, as the writer sees it.

    Attributes:
        directory: of the run.
        broken: why nothing more is written; "" as long as all is well.
    """

    def __init__(self, directory: Path, on_broken: Callable[[str], None]) -> None:
        self.directory = directory
        self.broken = ""
        self._on_broken = on_broken
        self._size = 0
        self._file: int | None = None

    def write(self, lines: bytes) -> None:
        """Append whole lines; what was written of one that does not fit is taken back. In the thread."""
        if self.broken:
            return
        try:
            if self._file is None:
                make_private(self.directory)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self.directory / EVENTS, flags, 0o600)
            left = memoryview(lines)
            while left:
                left = left[os.write(self._file, left) :]
            self._size += len(lines)
        except OSError as error:
            if self._file is not None:
                with contextlib.suppress(OSError):
                    os.truncate(self._file, self._size)
            self.spoil(error.strerror or str(error))

    def summarise(self, kept: Kept) -> None:
        """Replace the summary. In the thread."""
        try:
            make_private(self.directory)
            write_kept(self.directory, kept, sync=kept.info.over)
        except OSError as error:
            self.spoil(error.strerror or str(error))
        except ValueError as error:  # it can't be encoded; the events go on
            log.warning("the summary of %s could not be written: %s", kept.info.run, error)

    def spoil(self, why: str) -> None:
        """Write nothing more."""
        if not self.broken:
            self.broken = why
            self._on_broken(why)

    def sync(self) -> None:
        """Have the disk keep it. In the thread."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.fdatasync(self._file)

    def close(self) -> None:
        """Let go of the file until there is something to write. In the thread."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)


class _Summarise:
    __slots__ = ("kept",)

    def __init__(self, kept: Kept) -> None:
        self.kept = kept


class _Close:
    __slots__ = ("done",)

    def __init__(self, done: Callable[[], None]) -> None:
        self.done = done


Item: TypeAlias = "tuple[LogFile | None, bytes | _Summarise | _Close]"


class Writer:
    """See the module. All methods but `_work` and below are the event loop's.

    Attributes:
        times: how long writes took.
        bytes: how many were written.
    """

    def __init__(self) -> None:
        self.times = Tally()
        self.bytes = 0
        self._queue: deque[Item] = deque()
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._awake = False
        self._put = 0
        self._written = 0
        self._ending = False
        self._open: dict[LogFile, None] = {}
        self._thread = threading.Thread(target=self._work, name="callboard run logs", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def append(self, file: LogFile, line: bytes) -> None:
        """Write this line, some time within a tenth of a second; never waits."""
        if file.broken:
            return
        if self._put - self._written > BACKLOG:
            file.spoil("the disk does not keep up")
            return
        self._put += len(line)
        self._queue.append((file, line))
        if not self._awake:
            self._awake = True
            self._wake.set()

    def summarise(self, file: LogFile, kept: Kept) -> None:
        """Replace the summary, after what was appended."""
        self._add(file, _Summarise(kept))

    def close(self, file: LogFile, done: Callable[[], None]) -> None:
        """Nothing more will come: have it kept by the disk, then call `done` in the thread."""
        self._add(file, _Close(done))

    def flush(self, done: Callable[[], None]) -> None:
        """Write everything now, then call `done` in the thread."""
        self._add(None, _Close(done))
        self._urgent.set()

    def end(self) -> None:
        """Write what there is and end; `join` waits for it."""
        self._ending = True
        self._urgent.set()
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait for the end. Blocking."""
        self._thread.join(seconds)

    def _add(self, file: LogFile | None, item: _Summarise | _Close) -> None:
        self._queue.append((file, item))
        if not self._awake:
            self._awake = True
            self._wake.set()

    # --- in the thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            self._wake.wait()
            if not self._ending:
                self._urgent.wait(GATHER)
            self._urgent.clear()
            self._wake.clear()
            self._awake = False  # from here on the event loop wakes us again
            ending = self._ending
            try:
                self._write_all()
            except Exception:  # reported; one bad item must not end the log of every run
                log.exception("the log of a run could not be written")
            if self._queue:
                self._wake.set()
            elif ending:
                break
        for file in self._open:
            file.close()

    def _write_all(self) -> None:
        lines: dict[LogFile, list[bytes]] = {}
        for _ in range(len(self._queue)):
            file, item = self._queue.popleft()
            if isinstance(item, bytes):
                assert file is not None
                lines.setdefault(file, []).append(item)
                continue
            if file is None or file in lines:
                self._write_lines(lines)
            if isinstance(item, _Summarise):
                assert file is not None
                file.summarise(item.kept)
                continue
            if file is not None:
                file.sync()
                file.close()
                self._open.pop(file, None)
            item.done()
        self._write_lines(lines)

    def _write_lines(self, lines: dict[LogFile, list[bytes]]) -> None:
        for file, several in lines.items():
            block = b"\n".join([*several, b""])
            began = time.monotonic()
            file.write(block)
            self.times.add(time.monotonic() - began)
            self.bytes += len(block)
            self._written += len(block) - len(several)
            self._open.pop(file, None)
            self._open[file] = None
            if len(self._open) > OPEN_FILES:
                oldest = next(iter(self._open))
                del self._open[oldest]
                oldest.close()
        lines.clear()
