"""The file in which a state too large for the environment travels to a script.

It is there as long as the script runs. When we are killed with SIGKILL in the meantime, it stays behind, and it may
hold secrets: so its owner keeps it locked, and whoever first needs such a file removes those of ours that nobody
holds any more. The lock says that, and no process id, which would mean nothing in the container next door.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ....protocol.errors import NodeFailed

PREFIX, SUFFIX = "callboard-state-", ".json"

SETTLED = 60.0
"""Seconds after which a file that is not locked has no owner who is just about to lock it."""


@contextlib.contextmanager
def state_file(text: bytes) -> Iterator[str]:
    """The path of a file with this text, readable by us alone, until the end of the block.

    Raises:
        NodeFailed: it can't be written.
    """
    with contextlib.ExitStack() as stack:
        name = "a temporary file"
        try:
            directory = tempfile.gettempdir()
            _remove_leftovers_once(directory)
            handle, name = tempfile.mkstemp(prefix=PREFIX, suffix=SUFFIX, dir=directory)
            stack.callback(_remove, name)
            file = stack.enter_context(os.fdopen(handle, "wb", buffering=0))
            fcntl.flock(handle, fcntl.LOCK_EX)
            left = memoryview(text)
            while left:
                left = left[file.write(left) :]
        except OSError as error:
            raise NodeFailed(f"the state could not be written to {name}: {error.strerror or error}") from error
        yield name


def remove_leftovers(directory: str) -> None:
    """Remove the files in `directory` whose owners were killed."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):  # in use, gone, or not ours to touch
                    _remove_if_left(entry.path)


_remove_leftovers_once = cache(remove_leftovers)


def _remove_if_left(path: str) -> None:
    """Raises `BlockingIOError` if its owner lives."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(handle)
        ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if ours and time.time() - found.st_mtime > SETTLED:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
    finally:
        os.close(handle)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()
