"""A file that says that a process lives: it holds a lock on it, which the kernel lets go of at its end.

A pid would not do: it is given out again. The file lies beside the process's database and has its name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

ENDING = ".alive"


def new_sign() -> str:
    """A name for what this process writes; no other has it, not even one with the same pid."""
    return f"{os.getpid()}-{secrets.token_hex(6)}"


class Sign:
    """The sign of this process.

    Args:
        directory: where signs are; it is there.
        name: see `new_sign`.

    Raises:
        OSError: it can't be put up.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"{name}{ENDING}"
        new = directory / f".{name}{ENDING}"  # locked before it has its name
        self._file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            new.rename(self._path)
        except OSError:
            os.close(self._file)
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def down(self) -> None:
        """Take it down: nobody can tell that we live."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._file)


def lives(directory: Path, name: str) -> bool:
    """Whether the process of this sign lives; True also if that can't be found out."""
    try:
        file = os.open(directory / f"{name}{ENDING}", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:  # too many open files, perhaps
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look must not take each other for it
    except OSError:
        return True
    finally:
        os.close(file)
    return False
