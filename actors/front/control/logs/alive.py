"""Which processes live: each holds a lock on a file of its own, which the kernel lets go of when the process is gone.

A pid would not do: it is given out again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from .files import make_private


class Alive:
    """The sign that this process lives, and a look at those of others.

    Args:
        directory: where the signs are.
    """

    def __init__(self, directory: Path) -> None:
        self.token = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._directory = directory
        self._file: int | None = None

    def begin(self) -> None:
        """Put up our sign.

        Raises:
            OSError: it can't be put there.
        """
        make_private(self._directory)
        self._file = os.open(self._directory / self.token, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def end(self) -> None:
        """Take it down."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                (self._directory / self.token).unlink()
            os.close(file)

    def lives(self, token: str) -> bool:
        """Whether the process with this sign lives. The sign of one that does not is removed."""
        if token == self.token:
            return self._file is not None
        if not token or "/" in token or token.startswith("."):
            return False
        path = self._directory / token
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:  # too many open files, perhaps: who can't look must not say that its runs are lost
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look must not take each other for it
        except OSError:
            return True
        finally:
            os.close(file)
        with contextlib.suppress(OSError):
            path.unlink()
        return False
