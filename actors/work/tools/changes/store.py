"""The store on disk: contents of files by their SHA-256, and a record for each run.

changes/                    0700
    blobs/<sha256>          0600, a file's content as it was before a call changed it; each content once
    runs/run-7f3a01bc.jsonl 0600, a line for each path, see `record`

Any number of processes share it. Who writes or removes holds a lock on the directory meanwhile (`flock`, which goes
with a process that dies). It is bounded: beyond `most` bytes the oldest contents and records go first, and so nothing
that is asked of it may count on being there. All methods block.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from .....protocol.requests import ID
from ....io.directories import private_directory, state_dir
from ....io.whole_file import write_whole
from .record import Change, changes_in, line_of

MOST = 256 * 1024 * 1024
"""Bytes of all that is kept."""

MOST_OF_ONE = 8 * 1024 * 1024
"""Bytes of one file; the content of a longer one is not kept."""

MOST_FILES = 20_000
"""Contents and records; looking through so many takes a twentieth of a second."""

MOST_OF_RECORD = 4 * 1024 * 1024
"""Bytes of one run's record."""

LOCKED_FOR = 5.0
"""Seconds to wait for the lock."""

_BLOCK = 4096
"""What a small file takes of the disk."""

_SHARE = 16
"""The store is looked through again when this part of `most` was written."""


class Store:
    """See the module.

    Args:
        directory: made when something is kept.
        most: bytes of all that is kept.
        most_of_one: bytes of one file.
    """

    def __init__(self, directory: Path, *, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self.directory = directory
        self.most_of_one = most_of_one
        self._most = most
        self._blobs = directory / "blobs"
        self._records = directory / "runs"
        self._written = most  # so that the first writing looks through it

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Keep others from writing or removing meanwhile; afterwards, make room if there is too much.

        Raises:
            OSError: the directory can't be made, or another process holds the lock.
        """
        for path in (self.directory, self._blobs, self._records):
            _make_private(path)
        with _locked(self.directory):
            yield
            if self._written >= self._most // _SHARE:
                self._written = 0
                self._make_room()

    def keep(self, data: bytes) -> None:
        """Keep a content, within `writing`.

        Raises:
            OSError: it can't be kept.
        """
        path = self._blobs / sha_of(data)
        try:
            os.utime(path)  # as new as one that is written now
        except FileNotFoundError:
            self._written += max(len(data), _BLOCK)
            write_whole(path, data, private=True)

    def note(self, run: str, changes: Sequence[Change]) -> None:
        """Add to the record of a run, all or nothing, within `writing`.

        Raises:
            OSError: it can't be written.
        """
        lines = b"".join(map(line_of, changes))
        descriptor = os.open(self._record(run), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size + len(lines) > MOST_OF_RECORD:
                raise OSError(errno.EFBIG, "the record of this run is full")
            if os.write(descriptor, lines) < len(lines):
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        self._written += len(lines)

    def changes(self, run: str) -> list[Change]:
        """What the run has changed, in order."""
        try:
            return changes_in(self._record(run).read_bytes())
        except OSError:
            return []

    def runs(self, *, since: float = 0.0) -> list[str]:
        """The runs with a record that was added to at this time (seconds since 1970) or later."""
        try:
            with os.scandir(self._records) as entries:
                return [entry.name.removesuffix(".jsonl") for entry in entries if entry.stat().st_mtime >= since]
        except OSError:
            return []

    def content(self, sha: str) -> bytes | None:
        """What was kept; None if it is not there any more, or is not what it was."""
        if not sha:
            return None
        try:
            data = (self._blobs / sha).read_bytes()
        except OSError:
            return None
        return data if sha_of(data) == sha else None

    def remove(self, runs: Iterable[str]) -> None:
        """Remove the records of runs, and the contents that no other run has. What can't be removed stays."""
        there = {run: self.changes(run) for run in runs if self._record(run).exists()}
        if not there:
            return
        with contextlib.suppress(OSError), _locked(self.directory):
            named = _contents_in(there.values())
            for run in there:
                self._record(run).unlink(missing_ok=True)
            if named:
                named -= _contents_in(map(self.changes, self.runs()))
            for sha in named:
                (self._blobs / sha).unlink(missing_ok=True)

    def _record(self, run: str) -> Path:
        if ID.fullmatch(run) is None:  # it must not come near a path
            raise ValueError(f"'{run}' is not the id of a run")
        return self._records / f"{run}.jsonl"

    def _make_room(self) -> None:
        """Remove the oldest beyond the bounds, and what those have left who were killed while they wrote."""
        files = []
        for directory in (self._blobs, self._records):
            with contextlib.suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime, max(status.st_size, _BLOCK), entry.path))
        total = 0
        for number, (_, size, path) in enumerate(sorted(files, reverse=True)):
            total += size
            if total > self._most or number >= MOST_FILES or path.endswith(".part"):
                with contextlib.suppress(OSError):
                    os.unlink(path)  # noqa: PTH108 - a text of many


@lru_cache(maxsize=8)
def store_in(directory: Path) -> Store:
    """The store in a directory."""
    return Store(directory)


def store_of(environ: Mapping[str, str]) -> Store:
    """The user's: `changes` of the state directory."""
    return store_in(state_dir(environ) / "changes")


def sha_of(data: bytes) -> str:
    """Its SHA-256."""
    return hashlib.sha256(data).hexdigest()


def _contents_in(records: Iterable[Sequence[Change]]) -> set[str]:
    return {change.before.sha for record in records for change in record if change.before and change.before.sha}


def _make_private(directory: Path) -> None:
    private_directory(directory)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + LOCKED_FOR
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise OSError(errno.EAGAIN, "another process holds the lock on it") from None
                time.sleep(0.002)
        yield
    finally:
        os.close(descriptor)
