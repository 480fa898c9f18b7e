"""Files that are there whole or not at all, and locks that end with their process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Self

from .. import whole_file

STALE = 60.0
"""Seconds after which nobody is still writing a temporary file."""


def write_whole(path: Path, text: str) -> None:
    """Put `text` into the file, for nobody else to read: it is the old text or the new one, also after a crash."""
    private(path.parent)
    whole_file.write_whole(path, text.encode(), private=True, durable=True)


def private(folder: Path) -> None:
    """Make the directory, for nobody else to look into."""
    if not folder.is_dir():
        private_from = next(parent for parent in (folder, *folder.parents) if parent.parent.is_dir())
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (folder, *folder.parents):
            each.chmod(0o700)
            if each == private_from:
                break


def sweep(folder: Path) -> None:
    """Remove temporary files whose writers are gone."""
    now = time.time()
    for path in folder.glob("*.part"):
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > STALE:
                path.unlink()


class Lock:
    """A lock that one process has; taken with `try_lock`. It ends with the process, however that ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Give it back; twice is once."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def try_lock(path: Path) -> Lock | None:
    """The lock that the file stands for; None while somebody else has it.

    Raises:
        FileNotFoundError: there is no directory for it.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        try:
            if os.path.samestat(os.fstat(fd), path.stat()):  # else it was deleted meanwhile, and is nobody's
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
                return Lock(fd)
        except FileNotFoundError:
            if not path.parent.is_dir():
                os.close(fd)
                raise
        os.close(fd)


def holder(path: Path) -> int | None:
    """The process that has the lock, as far as it says so."""
    try:
        return int(path.read_text()[:20])
    except (OSError, ValueError):
        return None


def wait_lock(path: Path, seconds: float) -> Lock | None:
    """As `try_lock`, but waits; for names, which nobody holds for long."""
    until = time.monotonic() + seconds
    while (lock := try_lock(path)) is None and time.monotonic() < until:
        time.sleep(0.01)
    return lock
