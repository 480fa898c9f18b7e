"""Announces runs of programs that are no servers, such as `callboard run`: their presence only.

A run of a server leaves a log, from which others can follow it. One that was started at a terminal writes nothing down;
yet `callboard ps` should show it. So its process leaves a file for as long as it goes on, `present/<run>.json` in the
state directory, and holds a lock on it, which the kernel lets go of when the process is gone: the next look removes
what a run that was killed has left. A pid would not do: it is given out again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from ...io.directories import state_dir
from .logs.files import make_private


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
        make_private(path.parent)
        file = _locked(path, msgspec.json.encode(run))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(file)


def _locked(path: Path, data: bytes) -> int:
    """The file under its name, locked and written before it has that, so that a look finds all of it or nothing."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(file, data)
        new.rename(path)
    except OSError:
        os.close(file)
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return file


def read_present(environ: Mapping[str, str]) -> list[Present]:
    """The runs of this user's programs that are there now, the newest first."""
    found = [run for path in _folder(environ).glob("run-*.json") if (run := _look(path)) is not None]
    return sorted(found, key=lambda run: run.started, reverse=True)


def _look(path: Path) -> Present | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look must not take each other for it
    except OSError:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(path.read_bytes(), type=Present)
        return None
    else:
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    finally:
        os.close(file)


def _folder(environ: Mapping[str, str]) -> Path:
    return state_dir(environ) / "present"
