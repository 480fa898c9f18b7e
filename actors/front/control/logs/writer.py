"""The thread that writes the logs of a process's runs. The event loop never waits for the disk.

Lines are put into a queue in memory. The first of them wakes the thread, which lets a few more gather and then writes
everything at once, file by file. What can't be written (the disk is full) is reported once, stays in memory, and is
retried every second: the lines of a log, its summary, and the word that all of a run is on disk. Only too large a
backlog costs a run its log: more than `MOST_UNWRITTEN` of one, or `BACKLOG` of all, as when a disk stands still.
The run itself goes on.
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

from .....supervisors.tally import Tally
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

OPEN_FILES = 64
"""How many logs are held open; the others are opened again when there is something to write."""

log = logging.getLogger("callboard.control")


class LogFile:
    """The log of one run, as the writer sees it.

    Attributes:
        directory: of the run.
        broken: why nothing more is taken; "" as long as all is well, or may be when there is room.
        done: to be called when all of it is on disk, once it is closed.
    """

    def __init__(self, directory: Path, on_broken: Callable[[str], None]) -> None:
        self.directory = directory
        self.broken = ""
        self.done: Callable[[], None] | None = None
        self._on_broken = on_broken
        self._told = False
        self._forgotten = False
        self._size = 0
        self._file: int | None = None
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._kept: Kept | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether something of it is still to be written."""
        return bool(self._unwritten or self._kept)

    def add(self, lines: bytes) -> None:
        """Whole lines that are to be written by the next `flush`. In the thread."""
        if self._unwritten_bytes + len(lines) > max(MOST_UNWRITTEN, len(lines)):
            self.spoil("more of it would have to be kept in memory than there is room for")
        elif not self.broken:
            self._unwritten.append(lines)
            self._unwritten_bytes += len(lines)

    def summarise(self, kept: Kept) -> None:
        """The summary that the next `flush` writes. In the thread."""
        self._kept = kept

    def flush(self) -> bool:
        """Write what is to be written; whether all of it was. In the thread."""
        if self._forgotten:
            self._drop()
        if not self.is_stuck:
            return True
        try:
            make_private(self.directory)
            if self._unwritten:
                self._append(b"".join(self._unwritten))
                self._unwritten.clear()
                self._unwritten_bytes = 0
            if self._kept is not None:
                write_kept(self.directory, self._kept, sync=self._kept.info.over)
                self._kept = None
        except OSError as error:
            self._tell(error.strerror or str(error))
            return False
        except ValueError as error:  # it can't be encoded; the events go on
            log.warning("a summary in %s could not be written: %s", self.directory, error)
            self._kept = None
        return True

    def _append(self, lines: bytes) -> None:
        """All of this or nothing: what was written of lines that do not fit is taken back."""
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self.directory / EVENTS, flags, 0o600)
            left = memoryview(lines)
            while left:
                left = left[os.write(self._file, left) :]
            self._size += len(lines)
        except OSError:
            if self._file is not None:
                with contextlib.suppress(OSError):
                    os.truncate(self._file, self._size)
            raise

    def _tell(self, why: str) -> None:
        if not self._told:
            self._told = True
            self._on_broken(why)

    def spoil(self, why: str) -> None:
        """Take nothing more; what was taken is still written."""
        if not self.broken:
            self.broken = why
            self._tell(why)

    def forget(self) -> None:
        """The run is to be removed: write nothing more."""
        self.broken = self.broken or "the run was removed"
        self._forgotten = self._told = True

    def _drop(self) -> None:
        self._unwritten.clear()
        self._unwritten_bytes = 0
        self._kept = None

    def unwritten(self) -> int:
        """Bytes that are kept in memory. In the thread."""
        return self._unwritten_bytes

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
        self._stuck: dict[LogFile, None] = {}
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
            self._wake.wait(RETRY_EVERY if self._stuck else None)
            if not self._ending:
                self._urgent.wait(GATHER)
            self._urgent.clear()
            self._wake.clear()
            self._awake = False  # from here on the event loop wakes us again
            ending = self._ending
            try:
                while self._stuck and self._try_again():
                    pass
                self._write_all()
            except Exception:  # reported; one bad item must not end the log of every run
                log.exception("the log of a run could not be written")
            if self._queue:
                self._wake.set()
            elif ending:
                break
        for file in [*self._stuck]:
            if file.done is not None:
                file.done()
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
                self._flush(file)
            elif file is None:
                item.done()
            else:
                file.done = item.done
                if not file.is_stuck or file.broken:
                    self._done(file)
        self._write_lines(lines)

    def _write_lines(self, lines: dict[LogFile, list[bytes]]) -> None:
        for file, several in lines.items():
            block = b"\n".join([*several, b""])
            before = file.unwritten()
            file.add(block)
            dropped = len(block) if file.unwritten() == before else 0
            began = time.monotonic()
            self._flush(file)
            self.times.add(time.monotonic() - began)
            self.bytes += len(block)
            self._written += dropped - len(several)
        lines.clear()

    def _flush(self, file: LogFile) -> bool:
        """Write what there is of this one; if that can't be done now, remember it."""
        before = file.unwritten()
        written = file.flush()
        self._written += before - file.unwritten()
        if written:
            self._stuck.pop(file, None)
        else:
            self._stuck[file] = None
            if len(self._stuck) > MOST_STUCK:
                del self._stuck[next(iter(self._stuck))]
        self._open.pop(file, None)
        self._open[file] = None
        if len(self._open) > OPEN_FILES:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.close()
        return written

    def _try_again(self) -> bool:
        """Write one log that could not be written before; whether that can be done now.

        A disk is full for all of them, so the others wait for the next try, which begins with another one.
        """
        file = next(iter(self._stuck))
        del self._stuck[file]
        if not self._flush(file):
            return False
        if file.done is not None:
            self._done(file)
        return True

    def _done(self, file: LogFile) -> None:
        """All of it is on disk, or as much as can be."""
        done, file.done = file.done, None
        file.sync()
        file.close()
        self._open.pop(file, None)
        if done is not None:
            done()
