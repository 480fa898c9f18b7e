"""Atomic writes, locks that the kernel releases when their process ends, and the errors of a full or broken disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ....protocol.errors import InvalidFile, NotKept
from ....protocol.session import MOST_BYTES, head_of
from ...io import atomic_write

_HEAD = 64 * 1024

Stamp = tuple[int, int, int]


@contextlib.contextmanager
def disk_errors_named(place: Path) -> Iterator[None]:
    """Context manager that turns disk errors into errors that name the path.

    Raises:
        NotKept: in place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        where = error.filename2 or error.filename or place
        reason = error.strerror or str(error)
        hint = "; free some space there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise NotKept(f"sessions can't be saved: {where}: {reason}{hint}") from error


def stamp(path: Path) -> Stamp:
    """Return a value that differs after each write of the file, even if the clock is set back."""
    status = path.stat()
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def text_of(path: Path) -> str:
    """Return the file's text.

    Raises:
        InvalidFile: it is too long, or is not UTF-8.
    """
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InvalidFile(
            f"{path} has {size} bytes, but a session file may have at most {MOST_BYTES}; "
            "delete the session, or move the file to another directory"
        )
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{path} is not UTF-8: {error}") from None


def beginning_of(path: Path) -> str:
    """Return the part of the file before the messages, which has everything that a list of sessions shows."""
    with path.open("rb") as stream:
        begins = stream.read(_HEAD).decode("utf-8", "ignore")
    head = head_of(begins)
    return head if len(head) < len(begins) else head_of(text_of(path))


def write_whole(path: Path, text: str) -> None:
    """Replace the file's text; only its owner can read it. After a crash it has the old or the new text."""
    private(path.parent)
    atomic_write.write_whole(path, text.encode(), private=True, durable=True)


def private(folder: Path) -> None:
    """Create the directory, with access for its owner only."""
    if not folder.is_dir():
        private_from = next(parent for parent in (folder, *folder.parents) if parent.parent.is_dir())
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (folder, *folder.parents):
            each.chmod(0o700)
            if each == private_from:
                break


def sweep(folder: Path) -> None:
    """Remove temporary files of processes that were killed while writing. Hold the lock of the folder meanwhile."""
    for path in folder.glob("*.part"):
        with contextlib.suppress(OSError):
            path.unlink()


class Lock:
    """Exclusive file lock of this process; see `try_lock`. The kernel releases it when the process dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock. Further calls have no effect."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def try_lock(path: Path) -> Lock | None:
    """Acquire the lock of this file; return None if another process has it.

    Raises:
        FileNotFoundError: its directory does not exist.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:  # the file system has no locks
            os.close(fd)
            raise
        try:
            # Otherwise the file was deleted between open and lock, and another process may lock a new file of the same
            # name.
            if os.path.samestat(os.fstat(fd), path.stat()):
                # The pid is only for error messages, so a full disk does not matter.
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
                return Lock(fd)
        except FileNotFoundError:
            if not path.parent.is_dir():
                os.close(fd)
                raise
        os.close(fd)


def holder(path: Path) -> int | None:
    """Return the pid in the lock file; None if it cannot be read."""
    try:
        return int(path.read_text()[:20])
    except (OSError, ValueError):
        return None


def wait_lock(path: Path, seconds: float) -> Lock | None:
    """Wait for a lock, polling every 10 ms; return None after `seconds`. Only for locks of names, which are held
    briefly.
    """
    until = time.monotonic() + seconds
    while (lock := try_lock(path)) is None and time.monotonic() < until:
        time.sleep(0.01)
    return lock
