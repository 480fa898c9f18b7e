"""The thread that writes the logs of a process's runs. The event loop never waits for the disk.

Lines are put into a queue in memory. The first of them wakes the thread, which lets a few more gather and then writes
everything at once, file by file. What can't be written (the disk is full) is reported once, stays in memory, and is
retried every second: the lines of a log, its summary, and the word that all of a run is on disk. Only too large a
backlog costs a run its log: more than `MOST_UNWRITTEN` of one, or `BACKLOG` of all, as when a disk stands still.
The run itself goes on.

It is not `io.lines`, which drops a line that can't be written, has one sink, and never says that all is on disk.
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

import msgspec

from .....protocol.control.things import RunInfo
from .....supervisors.tally import Tally
from ....io.lines import from_any_thread
from .files import EVENTS, Kept, make_private, write_kept

GATHER = 0.05
"""Seconds in which lines gather before they are written."""

BACKLOG = 64 * 1024 * 1024
"""Bytes that may wait for the disk."""

MOST_UNWRITTEN = 8 * 1024 * 1024
"""Bytes of one log that are kept in memory while they can't be written."""

RETRY_EVERY = 1.0
"""Seconds between two tries to write what could not be written."""

MOST_STUCK = 10_000
"""Logs of which it is remembered that something is still to be written."""

BLOCK = 64 * 1024
"""Bytes that are read at a time where the last whole line is looked for."""

OPEN_FILES = 64
"""How many logs are held open; the others are opened again when there is something to write."""

log = logging.getLogger("callboard.control")

Done: TypeAlias = Callable[[], None]


class RunLog:
    """The log of a run that goes on in this process. The event loop calls the first methods, the thread the others.

    Args:
        on_trouble: called once, in the event loop, if writing fails.
        name: of the file in the directory.
        replaces: the file that goes when this one has its first line; "" for none.

    Attributes:
        directory: of the run.
        broken: why nothing more is taken; "" as long as all is well, or may be when there is room.
        trouble: why writing has failed.
        waiting: what the thread has not taken yet: lines, summaries, and what to call when all is on disk.
        due: whether the writer has been told that something waits.
        done: to be called when all of it is on disk, once it is closed.
        unwritten: bytes that the thread keeps in memory.
    """

    def __init__(
        self, writer: Writer, directory: Path, on_trouble: Done, *, name: str = EVENTS, replaces: str = ""
    ) -> None:
        self.directory = directory
        self.broken = self.trouble = ""
        self.waiting: deque[bytes | Kept | Done] = deque()
        self.due = False
        self.done: Done | None = None
        self.unwritten = 0
        self._name = name
        self._replaces = replaces
        self._writer = writer
        self._on_trouble: Done | None = from_any_thread(on_trouble)
        self._forgotten = False
        self._size = -1
        self._file: int | None = None
        self._lines: list[bytes] = []
        self._kept: Kept | None = None

    def append(self, line: bytes) -> None:
        """Write this line, some time within a tenth of a second; never waits."""
        if self.broken:
            return
        if self._writer.behind > BACKLOG:
            self.spoil("the disk does not keep up")
            return
        self._writer.put(self, line)

    def summarise(self, info: RunInfo) -> None:
        """Replace the summary, after what was appended."""
        self._writer.put(self, Kept(process=self._writer.process, info=msgspec.structs.replace(info)))

    def stands(self, info: RunInfo) -> None:
        """What lists say of the run has changed. A log on disk tells it at its beginning and its end."""

    def close(self, info: RunInfo, done: Done) -> None:
        """The run has ended. `done` is called, in the event loop, when all of it is on disk, or as much as can be."""
        self.summarise(info)
        self._writer.put(self, from_any_thread(done))

    def end(self) -> None:
        """There are no more lines, and no summary."""
        self._writer.put(self, _nothing)

    def forget(self) -> None:
        """The run is to be removed: write nothing more."""
        self.broken = self.broken or "the run was removed"
        self._forgotten, self._on_trouble = True, None

    def spoil(self, why: str) -> None:
        """Take nothing more; what was taken is still written. In either thread."""
        if not self.broken:
            self.broken = why
            self._report(why)

    def _report(self, why: str) -> None:
        report, self._on_trouble = self._on_trouble, None
        if report is not None:
            self.trouble = why
            report()

    # --- in the thread --------------------------------------------------------------------------------------

    def take(self) -> int:
        """Take over what waits, for the next `flush`; how many bytes of it are dropped for want of room."""
        lines: list[bytes] = []
        while self.waiting:
            item = self.waiting.popleft()
            if isinstance(item, bytes):
                lines.append(item)
            elif isinstance(item, Kept):
                self._kept = item
            else:
                self.done = item
        block = b"\n".join([*lines, b""])
        if self.unwritten + len(block) > max(MOST_UNWRITTEN, len(block)):
            self.spoil("more of it would have to be kept in memory than there is room for")
        if self.broken:
            return len(block)
        if block:
            self._lines.append(block)
            self.unwritten += len(block)
        return 0

    def flush(self) -> bool:
        """Write what is to be written; whether all of it was."""
        if self._forgotten:
            self._drop_lines()
            self._kept = None
        if not self._lines and self._kept is None:
            return True
        try:
            make_private(self.directory)
            if self._lines:
                self._append(b"".join(self._lines))
                self._drop_lines()
            if self._kept is not None:
                write_kept(self.directory, self._kept, sync=self._writer.sync and self._kept.info.over)
                self._kept = None
        except OSError as error:
            self._report(error.strerror or str(error))
            return False
        except ValueError as error:  # it can't be encoded; the events go on
            log.warning("a summary in %s could not be written: %s", self.directory, error)
            self._kept = None
        return True

    def _drop_lines(self) -> None:
        self._lines.clear()
        self.unwritten = 0

    def _append(self, lines: bytes) -> None:
        """All of this or nothing: what was written of lines that do not fit is taken back."""
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self.directory / self._name, flags, 0o600)
                if self._size < 0:
                    self._size = _cut_torn_line(self.directory / self._name)
                if self._replaces:
                    (self.directory / self._replaces).unlink(missing_ok=True)
                    self._replaces = ""
            left = memoryview(lines)
            while left:
                left = left[os.write(self._file, left) :]
            self._size += len(lines)
        except OSError:
            if self._file is not None:
                with contextlib.suppress(OSError):
                    os.truncate(self._file, self._size)
            raise

    def release(self, *, sync: bool = False) -> None:
        """Let go of the file until there is something to write; with `sync` the disk keeps what there is."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                if sync:
                    os.fdatasync(file)
            with contextlib.suppress(OSError):
                os.close(file)


def _cut_torn_line(path: Path) -> int:
    """How long the file is; of one that a killed process has left, without the beginning of a line at its end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while size:
            begin = max(0, size - BLOCK)
            file.seek(begin)
            last = file.read(size - begin).rfind(b"\n")
            size = begin + last + 1
            if last >= 0:
                break
    os.truncate(path, size)
    return size


def _nothing() -> None:
    """Called when all is on disk that no reader waits for."""


class Writer:
    """See the module. All methods but `_work` and below are the event loop's.

    Attributes:
        process: the token of this process, for the summaries.
        sync: what is said to be on disk is there after a power cut, too.
        times: how long writes took.
        bytes: how many were written.
    """

    def __init__(self, process: str, *, sync: bool = True) -> None:
        self.process = process
        self.sync = sync
        self.times = Tally()
        self.bytes = 0
        self._due: deque[RunLog] = deque()
        self._flushes: deque[Done] = deque()
        self._wake = threading.Event()
        self._urgent = threading.Event()
        self._awake = False
        self._put = 0
        self._written = 0
        self._ending = False
        self._open: dict[RunLog, None] = {}
        self._stuck: dict[RunLog, None] = {}
        self._thread = threading.Thread(target=self._work, name="callboard run logs", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def behind(self) -> int:
        """Bytes of all logs that wait for the disk."""
        return self._put - self._written

    def put(self, file: RunLog, item: bytes | Kept | Done) -> None:
        """Have this written, or called, after what was put before."""
        if isinstance(item, bytes):
            self._put += len(item) + 1
        file.waiting.append(item)
        if not file.due:
            file.due = True
            self._due.append(file)
        if not self._awake:
            self._awake = True
            self._wake.set()

    def flush(self, done: Done) -> None:
        """Write everything now, then call `done` in the event loop."""
        self._flushes.append(from_any_thread(done))
        self._urgent.set()
        self._wake.set()

    def end(self) -> None:
        """Write what there is and end; `join` waits for it."""
        self._ending = True
        self._urgent.set()
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait for the end. Blocking."""
        self._thread.join(seconds)

    # --- in the thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            self._wake.wait(RETRY_EVERY if self._stuck else None)
            if not self._ending:
                self._urgent.wait(GATHER)
            self._urgent.clear()
            self._wake.clear()
            self._awake = False  # from here on the event loop wakes us again
            ending = self._ending
            flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]
            while self._stuck and self._write(next(iter(self._stuck))):
                pass  # a disk is full for all of them: after a failure the others wait for the next try
            for _ in range(len(self._due)):
                file = self._due.popleft()
                file.due = False  # from here on the event loop puts it in again
                self._write(file)
            for done in flushes:
                done()
            if self._due or self._flushes:
                self._wake.set()
            elif ending:
                break
        for file in self._stuck:
            if file.done is not None:
                file.done()
        for file in self._open:
            file.release()

    def _write(self, file: RunLog) -> bool:
        """Write what there is of this one, and remember it if that can't be done now; whether it could."""
        self._stuck.pop(file, None)
        before, began, written = 0, time.monotonic(), True
        try:
            self._written += file.take()
            before = file.unwritten
            written = file.flush()
        except Exception:  # reported; one bad item must not end the log of every run
            log.exception("the log of a run could not be written")
        if before:
            self.times.add(time.monotonic() - began)
        self.bytes += before - file.unwritten
        self._written += before - file.unwritten
        if not written:
            self._stuck[file] = None
            if len(self._stuck) > MOST_STUCK:
                del self._stuck[next(iter(self._stuck))]
        self._open.pop(file, None)
        self._open[file] = None
        if len(self._open) > OPEN_FILES:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.release()
        if file.done is not None and (written or file.broken):
            self._finish(file)
        return written

    def _finish(self, file: RunLog) -> None:
        done, file.done = file.done, None
        file.release(sync=self.sync)
        self._open.pop(file, None)
        if done is not None:
            done()
