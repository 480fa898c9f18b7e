"""Writer thread for the logs of this process's runs. The event loop never waits for the disk.

The event loop appends lines to a queue in memory. The first line wakes the thread, which waits a moment for more and
then writes all of them, file by file.

A write that fails (the disk is full) is reported once. Its data stays in memory and is retried every second: lines,
the summary, and the callback that all of a run is on disk. A run loses its log only if the backlog is too large: more
than `MOST_UNWRITTEN` for one log or `BACKLOG` for all, for example because the disk hangs. The run itself continues.

Invariants:

- A log on disk has no gaps and no partial lines: a block is appended completely, or the file is truncated again.
- The lines of a log precede its summary, and the summary precedes `done`.
- `put` runs in the event loop only, and `take` and `flush` in the thread only; `waiting` is the deque between them.

`io.lines` is not suitable: it drops a line that cannot be written, has one sink, and cannot report completion.
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

from .....protocol.control.resources import RunInfo
from .....supervisors.histogram import LatencyHistogram
from ....io.lines import from_any_thread
from .files import EVENTS, StoredRun, make_private, write_summary

GATHER = 0.05
"""Seconds that the thread collects lines before it writes."""

BACKLOG = 64 * 1024 * 1024
"""Bytes of all logs that may wait for the disk."""

MOST_UNWRITTEN = 8 * 1024 * 1024
"""Bytes of one log that stay in memory while they cannot be written."""

RETRY_EVERY = 1.0
"""Seconds between two attempts to write data that could not be written."""

MOST_STUCK = 10_000
"""Logs with unwritten data that the thread remembers for a retry."""

BLOCK = 64 * 1024
"""Bytes per read in the search for the last complete line."""

OPEN_FILES = 64
"""Logs whose files are held open; others are opened again for each write."""

log = logging.getLogger("callboard.control")

Done: TypeAlias = Callable[[], None]


class RunLog:
    """Log of a run under way in this process.

    The event loop calls the methods up to `spoil`, the writer thread the others.

    Args:
        on_trouble: called once, in the event loop, if writing fails.
        name: file name in the directory.
        replaces: file to remove when this one gets its first line; "" for none.

    Attributes:
        directory: directory of the run.
        broken: reason why the log accepts no more lines; "" while it does.
        trouble: reason why writing failed.
        waiting: items that the thread has not yet fetched: lines, summaries, and the completion callback.
        due: whether the log is in the writer's queue.
        done: callback for the time when all of a closed log is on disk.
        unwritten: bytes that the thread holds in memory.
    """

    def __init__(
        self, writer: LogWriter, directory: Path, on_trouble: Done, *, name: str = EVENTS, replaces: str = ""
    ) -> None:
        self.directory = directory
        self.broken = self.trouble = ""
        self.waiting: deque[bytes | StoredRun | Done] = deque()
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
        self._kept: StoredRun | None = None

    def append(self, line: bytes) -> None:
        """Queue a line, which is written within about a tenth of a second; never blocks."""
        if self.broken:
            return
        if self._writer.behind > BACKLOG:
            # The event loop must not wait, and memory is bounded, so the log gives up; the run continues.
            self.spoil("the disk is too slow for the events")
            return
        self._writer.put(self, line)

    def summarise(self, info: RunInfo) -> None:
        """Queue a new summary, which is written after the lines appended before."""
        self._writer.put(self, StoredRun(process=self._writer.process, info=msgspec.structs.replace(info)))

    def stands(self, info: RunInfo) -> None:
        """Ignore a changed summary: a log on disk stores the summary only when the run begins and ends."""

    def close(self, info: RunInfo, done: Done) -> None:
        """Queue the final summary; `done` is called in the event loop when the log is on disk as far as possible."""
        self.summarise(info)
        self._writer.put(self, from_any_thread(done))

    def end(self) -> None:
        """Queue the closing of the file after its last line; for a log without a summary."""
        self._writer.put(self, _nothing)

    def forget(self) -> None:
        """Drop all unwritten data, because the run is to be deleted."""
        self.broken = self.broken or "the run was removed"
        self._forgotten, self._on_trouble = True, None

    def spoil(self, why: str) -> None:
        """Accept no more lines; accepted ones are still written. Callable in both threads."""
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
        """Fetch the waiting items for the next `flush`; returns the number of bytes dropped for lack of memory."""
        lines: list[bytes] = []
        while self.waiting:
            item = self.waiting.popleft()
            if isinstance(item, bytes):
                lines.append(item)
            elif isinstance(item, StoredRun):
                self._kept = item
            else:
                self.done = item
        block = b"\n".join([*lines, b""])
        # One block may exceed the limit if nothing else waits: a disk that works takes it at once.
        if self.unwritten + len(block) > max(MOST_UNWRITTEN, len(block)):
            self.spoil("too many events of the run are not written yet")
        if self.broken:
            return len(block)
        if block:
            self._lines.append(block)
            self.unwritten += len(block)
        return 0

    def flush(self) -> bool:
        """Write the fetched items; return False if some must be tried again. Drops a summary that cannot be encoded."""
        if self._forgotten:
            self._drop_lines()
            self._kept = None
        if not self._lines and self._kept is None:
            return True
        try:
            make_private(self.directory)
            # Events first: a summary on disk never claims an event that the log lacks.
            if self._lines:
                self._append(b"".join(self._lines))
                self._drop_lines()
            if self._kept is not None:
                write_summary(self.directory, self._kept, sync=self._writer.sync and self._kept.info.over)
                self._kept = None
        except OSError as error:
            self._report(error.strerror or str(error))
            return False
        except ValueError as error:  # the summary cannot be encoded; the log of events is unaffected
            log.warning("the summary in %s could not be written: %s", self.directory, error)
            self._kept = None
        return True

    def _drop_lines(self) -> None:
        self._lines.clear()
        self.unwritten = 0

    def _append(self, lines: bytes) -> None:
        """Append all lines or none: after a failure, the file is truncated to its previous size."""
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self.directory / self._name, flags, 0o600)
                if self._size < 0:
                    # A process that was killed may have left half a line, which would spoil the first new one.
                    self._size = _cut_torn_line(self.directory / self._name)
                if self._replaces:
                    (self.directory / self._replaces).unlink(missing_ok=True)
                    self._replaces = ""
            # `write` may take only a part, for example shortly before the disk is full.
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
        """Close the file until the next write; with `sync`, first flush it to the disk."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                if sync:
                    os.fdatasync(file)
            with contextlib.suppress(OSError):
                os.close(file)


def _cut_torn_line(path: Path) -> int:
    """Truncate a file after its last complete line, and return its size."""
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
    """Completion callback of a file whose end no reader waits for."""


class LogWriter:
    """Thread that writes run logs. The event loop calls all public methods except `join`, which blocks.

    Attributes:
        process: token of this process, for the summaries.
        sync: whether finished runs survive a power cut.
        times: durations of the writes.
        bytes: number of bytes written.
    """

    def __init__(self, process: str, *, sync: bool = True) -> None:
        self.process = process
        self.sync = sync
        self.times = LatencyHistogram()
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
        self._thread.start()

    @property
    def behind(self) -> int:
        """Bytes of all logs that wait for the disk."""
        return self._put - self._written

    def put(self, file: RunLog, item: bytes | StoredRun | Done) -> None:
        """Queue an item of a log: a line or summary to write, or a callback to call."""
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
        """Request that the thread writes everything now. Afterwards, `done` is called in the event loop.

        It is called even if a log could not be written.
        """
        self._flushes.append(from_any_thread(done))
        self._urgent.set()
        self._wake.set()

    def end(self) -> None:
        """Request that the thread writes the remaining items and stops; `join` waits for it."""
        self._ending = True
        self._urgent.set()
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` for the end of the thread. Blocking: call it in a worker thread."""
        self._thread.join(seconds)

    # --- in the thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            self._wake.wait(RETRY_EVERY if self._stuck else None)
            if not self._ending:
                self._urgent.wait(GATHER)
            self._urgent.clear()
            self._wake.clear()
            # Cleared before the queues are read: an item added from here on sets `_wake` again.
            self._awake = False
            ending = self._ending
            flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]
            while self._stuck and self._write(next(iter(self._stuck))):
                pass  # a full disk fails all of them: after one failure, the others wait for the next attempt
            for _ in range(len(self._due)):
                file = self._due.popleft()
                file.due = False  # before the write: a line that arrives during it queues the log again
                self._write(file)
            for done in flushes:
                done()
            if self._due or self._flushes:
                self._wake.set()
            elif ending:
                break
        # The logs could not be written until the end; those that wait for them must not wait forever.
        for file in self._stuck:
            if file.done is not None:
                file.done()
        for file in self._open:
            file.release()

    def _write(self, file: RunLog) -> bool:
        """Write the waiting items of a log and remember it if that fails; returns True if all were written."""
        self._stuck.pop(file, None)
        before, began, written = 0, time.monotonic(), True
        try:
            self._written += file.take()
            before = file.unwritten
            written = file.flush()
        except Exception:  # logged: one bad item must not end the logs of all runs
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
