"""Replacement for the package `filelock`, which DevAll requires, if it is not installed."""

from __future__ import annotations

import fcntl
import os
import time
import typing
from pathlib import Path


class Timeout(TimeoutError):
    """Error of `acquire`: the lock was not free in time."""


class FileLock:
    """Exclusive lock on a file between processes; reentrant within this object.

    Args:
        lock_file: the lock's own file, which is created with its directory.
        timeout: seconds to wait; -1 for no limit.
    """

    def __init__(self, lock_file: typing.Union[str, os.PathLike], timeout: float = -1) -> None:
        self.lock_file = os.fspath(lock_file)
        self.timeout = timeout
        self._file: typing.Optional[int] = None
        self._depth = 0

    @property
    def is_locked(self) -> bool:
        return self._file is not None

    def acquire(self, timeout: typing.Optional[float] = None) -> FileLock:
        """Block until the lock is free; raise `Timeout` after `timeout` seconds (by default those of the object)."""
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
        except BaseException:  # also on interruption, so that the file does not stay open
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
        """Release the lock, or one level of a nested `acquire`."""
        self._depth = 0 if force else max(self._depth - 1, 0)
        if self._depth == 0 and self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> FileLock:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
