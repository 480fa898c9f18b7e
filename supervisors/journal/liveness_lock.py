"""Lock file that proves that a process is alive.

The process holds `flock` on it; the kernel releases the lock when the process dies, however it dies. A pid file is not
enough, because pids are reused. The file is in the directory of the process's database and has the same name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

SUFFIX = ".alive"


def unique_process_name() -> str:
    """Return a name for this process that is unique across processes and pid reuse. It names the process's database."""
    return f"{os.getpid()}-{secrets.token_hex(6)}"


class LivenessLock:
    """Exclusive lock, held for the lifetime of this process.

    Args:
        directory: directory of the lock files; it exists.
        name: see `unique_process_name`.

    Raises:
        OSError: the file can't be created or locked.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"{name}{SUFFIX}"
        new = directory / f".{name}{SUFFIX}"  # renamed once locked: a visible file without a lock would look dead
        self._file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(self._path)
        except OSError:
            os.close(self._file)
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def release(self) -> None:
        """Remove the file and release the lock. Other processes now see this one as dead."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._file)


def is_alive(directory: Path, name: str) -> bool:
    """Return True if the process holds its lock, or if that cannot be determined (too many open files, for example).

    A run of a living process must never be taken over by mistake.
    """
    try:
        file = os.open(directory / f"{name}{SUFFIX}", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        # LOCK_SH: two concurrent checks must not mistake each other's probe for the owner's lock.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
