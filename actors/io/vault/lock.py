"""File lock between processes: `flock` on an empty `.lock` file, which the kernel releases."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ....protocol.errors import ConfigError, UpstreamError

WITHIN = 30.0
"""Seconds to wait for another process, whose user may be typing a passphrase."""

LOOK_EVERY = 0.02


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock of a file, whichever symlink leads to it. Blocks.

    Raises:
        OSError: locking is not possible.
        UpstreamError: another process holds it for too long.
    """
    target = Path(os.path.realpath(file))  # a loop of symlinks raises nothing here, and fails to open later
    path = target.with_name(f"{target.name}.lock")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        end = time.monotonic() + WITHIN
        while not _taken(handle, path):
            if time.monotonic() >= end:
                raise UpstreamError(f"another process keeps {path} locked for more than {WITHIN:g} s")
            time.sleep(LOOK_EVERY)
        yield
    finally:
        os.close(handle)


def _taken(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # file systems without locks
        raise ConfigError(f"{path} can't be locked: {error.strerror or error}") from error
    return True
