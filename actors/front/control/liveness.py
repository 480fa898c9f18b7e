"""Lock files that prove that a process, or one of its runs, is alive.

The process holds `flock` on the file; the kernel releases the lock when the process ends, however it ends. A pid file
is not enough, because pids are reused. `Alive` checks if a process with run logs is alive. `present` announces a run
of a program that is not a server, such as `callboard run`. Other processes cannot follow such a run, but `callboard ps`
lists it from the file `present/<run>.json` in the state directory.
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
"""Attempts to create and lock a file: a cleanup command may remove the file before it is locked."""


def hold(path: Path, data: bytes = b"") -> int:
    """Create a locked file with this content and return its descriptor.

    The file is locked and written under a temporary name and then renamed, so no reader sees it unlocked or empty.

    Raises:
        OSError: the file cannot be created.
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
        # A cleanup (`actors.io.temporary`) may find the file before it is locked, and then locks or removes it.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(file, data)
        new.rename(path)
    except OSError:
        release(new, file)
        raise
    return file


def release(path: Path, file: int) -> None:
    """Remove a locked file and close its descriptor."""
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(file)


def is_held(path: Path) -> bool:
    """Return True if the process that created this file is alive, or if that cannot be determined.

    Removes the file of a dead process.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:  # for example, too many open files: a live process must not be declared dead
        return True
    try:
        # LOCK_SH: two concurrent checks must not mistake each other's probe for the owner's lock.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return True
    release(path, file)
    return False


class Alive:
    """Liveness lock of this process, and checks of the locks of others.

    Args:
        directory: directory of the lock files.
    """

    def __init__(self, directory: Path) -> None:
        self.token = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._directory = directory
        self._file: int | None = None

    def begin(self) -> None:
        """Create the lock file of this process.

        Raises:
            OSError: the file cannot be created.
        """
        self._file = hold(self._directory / self.token)

    def end(self) -> None:
        """Remove the lock file. Other processes now see this one as dead."""
        file, self._file = self._file, None
        if file is not None:
            release(self._directory / self.token, file)

    def lives(self, token: str) -> bool:
        """Return True if the process with this token is alive. Removes the file of a dead process."""
        if token == self.token:
            return self._file is not None
        return bool(token) and "/" not in token and not token.startswith(".") and is_held(self._directory / token)


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """Run of a program that is not a server.

    Attributes:
        run: id of the run.
        target, name: the started target, and the name in its definition.
        started: time of its start (RFC 3339).
        pid: id of its process.
    """

    run: str
    target: str
    name: str
    started: str
    pid: int


@contextlib.contextmanager
def present(run: Present, environ: Mapping[str, str]) -> Iterator[None]:
    """Announce the run to other processes while the block lasts; does nothing if the file cannot be written."""
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
    """Return the announced runs of this user whose processes are alive, newest first. Removes files of dead ones."""
    found = []
    for path in filter(is_held, _folder(environ).glob("run-*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found.append(decode_json(path.read_bytes(), Present))
    return sorted(found, key=lambda run: run.started, reverse=True)


def _folder(environ: Mapping[str, str]) -> Path:
    return state_dir(environ) / "present"
