"""Stands in for the package `filelock`, which DevAll requires, where it is not installed."""

from __future__ import annotations

import fcntl
import os
import time
import typing
from pathlib import Path


class Timeout(TimeoutError):
    """The lock was not free in time."""


class FileLock:
    """Holds a file for one process at a time; within this one it may be taken again.

    Args:
        lock_file: a file of its own, which is made, with its directory.
        timeout: seconds to wait for it; -1 for as long as it takes.
    """

    def __init__(self, lock_file: typing.Union[str, os.PathLike], timeout: float = -1) -> None:
        self.lock_file = os.fspath(lock_file)
        self.timeout = timeout
        self._file: typing.Optional[int] = None
        self._depth = 0

    @property
    def is_locked(self) -> bool:
        """Whether this one holds it."""
        return self._file is not None

    def acquire(self, timeout: typing.Optional[float] = None) -> FileLock:
        """Wait for it."""
        self._depth += 1
        if self._file is not None:
            return self
        seconds = self.timeout if timeout is None else timeout
        Path(self.lock_file).parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.lock_file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if seconds < 0:
                fcntl.flock(file, fcntl.LOCK_EX)
            else:
                self._within(file, time.monotonic() + seconds)
        except BaseException:  # interrupted too: the file does not stay open
            os.close(file)
            self._depth -= 1
            raise
        self._file = file
        return self

    def _within(self, file: int, end: float) -> None:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise Timeout(f"The file lock '{self.lock_file}' could not be acquired.") from None
                time.sleep(0.05)
            else:
                return

    def release(self, force: bool = False) -> None:
        """Give it back."""
        self._depth = 0 if force else max(self._depth - 1, 0)
        if self._depth == 0 and self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> FileLock:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
