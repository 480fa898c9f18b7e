"""Files that say that a process lives, or a run of it: it holds a lock on one, which the kernel lets go of at its end.

A pid would not do: it is given out again. `Alive` says which of the processes live that keep logs of runs. `present`
announces a run of a program that is no server, such as `callboard run`: it writes no log that others could follow, yet
`callboard ps` shows it, by the file `present/<run>.json` of the state directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from ....protocol.decoding import decode_json
from ...io.directories import state_dir
from .logs.files import make_private

LOCK_ATTEMPTS = 3
"""Times that a file is made and locked: a command that removes unlocked files may come in between."""


def hold(path: Path, data: bytes = b"") -> int:
    """Make this file and lock it; its descriptor. It is locked and written before it has its name.

    Raises:
        OSError: it can't be made there.
    """
    make_private(path.parent)
    for _ in range(LOCK_ATTEMPTS - 1):
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            return _hold(path, data)
    return _hold(path, data)


def _hold(path: Path, data: bytes) -> int:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # A command that sweeps (`actors.io.temporary`) may find the file before it is locked: it is removed, or locked.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(file, data)
        new.rename(path)
    except OSError:
        release(new, file)
        raise
    return file


def release(path: Path, file: int) -> None:
    """Remove a file that is held."""
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(file)


def is_held(path: Path) -> bool:
    """Whether the process lives that has made this file. That of one that does not is removed."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:  # too many open files, perhaps: who can't look must not say that the process is gone
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look must not take each other for it
    except OSError:
        os.close(file)
        return True
    release(path, file)
    return False


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
        self._file = hold(self._directory / self.token)

    def end(self) -> None:
        """Take it down."""
        file, self._file = self._file, None
        if file is not None:
            release(self._directory / self.token, file)

    def lives(self, token: str) -> bool:
        """Whether the process with this sign lives. The sign of one that does not is removed."""
        if token == self.token:
            return self._file is not None
        return bool(token) and "/" not in token and not token.startswith(".") and is_held(self._directory / token)


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """A run that goes on: what was started and how that calls itself, when (RFC 3339), and in which process."""

    run: str
    target: str
    name: str
    started: str
    pid: int


@contextlib.contextmanager
def present(run: Present, environ: Mapping[str, str]) -> Iterator[None]:
    """The run can be seen by others for the length of the block; where nothing can be written, it can't."""
    path = _folder(environ) / f"{run.run}.json"
    try:
        file = hold(path, msgspec.json.encode(run))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        release(path, file)


def read_present(environ: Mapping[str, str]) -> list[Present]:
    """The runs of this user's programs that are there now, the newest first."""
    found = []
    for path in filter(is_held, _folder(environ).glob("run-*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found.append(decode_json(path.read_bytes(), Present))
    return sorted(found, key=lambda run: run.started, reverse=True)


def _folder(environ: Mapping[str, str]) -> Path:
    return state_dir(environ) / "present"
