"""On-disk store of changes: file contents by SHA-256, and a record per run.

    changes/                    0700
        blobs/<sha256>          0600, a file's content before a call changed it; each content once
        runs/run-7f3a01bc.jsonl 0600, one line per changed path, in order

Any number of processes share the store. A process that writes or removes holds `flock` on the directory, which the
kernel releases when the process dies. The store is bounded: beyond `most` bytes the oldest contents and records are
removed first, so no content is guaranteed to exist.

A line of a record is a `PathChange` as JSON, with the path's state before and after the change. Paths are
percent-encoded as in `file:` URIs, since file names are bytes and JSON is text. `seen` and `present` read the current
state of a path, for comparison; they do not follow links. All functions block.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

import msgspec

from .....protocol.decoding import json_decoder
from .....protocol.requests import ID
from ....io.atomic_write import write_whole
from ....io.directories import private_directory, state_dir
from ..builtin.allowed_paths import AllowedPath, walked

Kind = Literal["file", "link", "directory", "other"]


class PathState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a path at one time.

    Attributes:
        kind: `other` is a file without contents, such as a pipe.
        sha: SHA-256 of a file's content; empty if the content was not read.
        size: of a file, in bytes.
        mode: permission bits.
        target: target of a link, encoded.
    """

    kind: Kind = "file"
    sha: str = ""
    size: int = 0
    mode: int = 0o644
    target: str = ""


class PathChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Change of one path by one call. The record is written before the change is made.

    Attributes:
        at: nanoseconds since 1970.
        actor: path of the call's actor.
        tool: its name.
        root: the allowed directory of the call, without links; encoded.
        path: relative to the root; encoded.
        before, after: state of the path; None if nothing exists there.
        lost: the reason why the earlier content is not stored; empty if it is, or if there is none.
        unshown: the permissions deny reading the file's contents.
        secret: a content includes a secret that the vault had given to that process.
        secrets: names of these secrets, each as `{{NAME}}`; "" for one without a name.
        void: the change of the same path and time in an earlier line has failed.
        call: key of the call, the same in all incarnations of a durable run; "" in other runs.
    """

    at: int
    actor: str
    tool: str
    root: str
    path: str
    before: PathState | None = None
    after: PathState | None = None
    lost: str = ""
    unshown: bool = False
    secret: bool = False
    secrets: tuple[str, ...] = ()
    void: bool = False
    call: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The path's components below the root."""
        return tuple(decoded(self.path).split("/"))

    @property
    def whole(self) -> Path:
        """The absolute path."""
        return Path(decoded(self.root)).joinpath(*self.parts)


MOST = 256 * 1024 * 1024
"""Maximum size of the store in bytes."""

MOST_OF_ONE = 8 * 1024 * 1024
"""Maximum bytes of one file; the content of a larger file is not stored."""

MOST_FILES = 20_000
"""Maximum number of contents and records. A scan of that many takes about 50 ms."""

MOST_OF_RECORD = 4 * 1024 * 1024
"""Maximum bytes of one run's record."""

LOCKED_FOR = 5.0
"""Seconds to wait for the lock."""

_BLOCK = 4096
"""Bytes that a small file occupies on disk."""

_SHARE = 16
"""Fraction of `most` (1/16): the store is scanned again after that much was written."""


class ChangeStore:
    """Store of file contents and change records.

    Args:
        directory: created with the first stored change.
        most: maximum size of the store in bytes.
        most_of_one: maximum bytes of one file.
    """

    def __init__(self, directory: Path, *, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self.directory = directory
        self.most_of_one = most_of_one
        self._most = most
        self._blobs = directory / "blobs"
        self._records = directory / "runs"
        self._written = most  # The first write scans the store.

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock during the block; afterwards remove the oldest files if the store is too large.

        Raises:
            OSError: the directory cannot be created, or another process holds the lock.
        """
        for path in (self.directory, self._blobs, self._records):
            private_directory(path)
            # `private_directory` leaves the mode of an existing directory; these hold contents of the user's files.
            if path.stat().st_mode & 0o077:
                path.chmod(0o700)
        with _locked(self.directory):
            yield
            if self._written >= self._most // _SHARE:
                self._written = 0
                self._make_room()

    def keep(self, data: bytes) -> None:
        """Store a content. Requires `writing`.

        Raises:
            OSError: the content cannot be stored.
        """
        path = self._blobs / sha_of(data)
        try:
            os.utime(path)  # Renew the age of the content, so that cleanup treats it as new.
        except FileNotFoundError:
            self._written += max(len(data), _BLOCK)
            write_whole(path, data, private=True)

    def note(self, run: str, changes: Sequence[PathChange]) -> None:
        """Append to the record of a run, all or nothing. Requires `writing`.

        Raises:
            OSError: the record cannot be written.
        """
        lines = b"".join(map(line_of, changes))
        descriptor = os.open(self._record(run), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size + len(lines) > MOST_OF_RECORD:
                raise OSError(errno.EFBIG, "the list of this run's changes has reached its maximum size")
            if os.write(descriptor, lines) < len(lines):
                # A torn line would hide the next one from readers.
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        self._written += len(lines)

    def changes(self, run: str) -> list[PathChange]:
        """Return the changes of the run, in order; [] if its record is missing or unreadable."""
        try:
            return changes_in(self._record(run).read_bytes())
        except OSError:
            return []

    def runs(self, *, since: float = 0.0) -> list[str]:
        """Return the runs whose record was modified at this time (seconds since 1970) or later."""
        try:
            with os.scandir(self._records) as entries:
                return [entry.name.removesuffix(".jsonl") for entry in entries if entry.stat().st_mtime >= since]
        except OSError:
            return []

    def content(self, sha: str) -> bytes | None:
        """Return a stored content; None if it was removed, or does not match its hash."""
        if not sha:
            return None
        try:
            data = (self._blobs / sha).read_bytes()
        except OSError:
            return None
        # A damaged content must never be written into the user's files.
        return data if sha_of(data) == sha else None

    def remove(self, runs: Iterable[str]) -> None:
        """Delete the records of runs, and the contents that no other run refers to. Errors are ignored."""
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
        if ID.fullmatch(run) is None:  # The run id becomes part of a path, so an arbitrary text must not pass.
            raise ValueError(f"'{run}' is not the id of a run")
        return self._records / f"{run}.jsonl"

    def _make_room(self) -> None:
        """Remove the oldest files beyond the limits, and partial files of processes that died during a write."""
        files = []
        for directory in (self._blobs, self._records):
            with contextlib.suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime, max(status.st_size, _BLOCK), entry.path))
        total = 0
        for number, (_, size, path) in enumerate(sorted(files, reverse=True)):
            total += size
            # The writer of a `.part` file would hold the lock, so its process is dead.
            if total > self._most or number >= MOST_FILES or path.endswith(".part"):
                with contextlib.suppress(OSError):
                    os.unlink(path)  # noqa: PTH108 - a text of many


@lru_cache(maxsize=8)
def store_in(directory: Path) -> ChangeStore:
    """Return the store in a directory."""
    return ChangeStore(directory)


def store_of(environ: Mapping[str, str]) -> ChangeStore:
    """Return the user's store: `changes` in the state directory."""
    return store_in(state_dir(environ) / "changes")


def encoded(path: str | Path) -> str:
    """Return a path as ASCII text, whatever bytes it consists of."""
    return quote(os.fsencode(path), safe="/ ")


def decoded(text: str) -> str:
    """Return the path of an encoded text."""
    return os.fsdecode(unquote_to_bytes(text))


def printable_path(path: str | Path) -> str:
    """Return a path for display and JSON, with undecodable bytes replaced."""
    return os.fsencode(path).decode(errors="replace")


def same(one: PathState | None, other: PathState | None) -> bool:
    """Return True if both states have the same kind and content, or both are missing.

    A file whose content was not read equals no other, and neither does a path of the kind `other`. Modes do not count.
    """
    if one is None or other is None:
        return one is other
    if one.kind != other.kind:
        return False
    match one.kind:
        case "file":
            # An empty hash means unknown content, which must not count as unchanged.
            return one.sha == other.sha != ""
        case "link":
            return one.target == other.target
        case "directory":
            return True
    return False


_ENCODER = msgspec.json.Encoder()
_DECODER = json_decoder(PathChange)


def line_of(change: PathChange) -> bytes:
    return _ENCODER.encode(change) + b"\n"


def changes_in(data: bytes) -> list[PathChange]:
    """Return the changes of a record, without failed ones. Unreadable lines (torn, other version) are ignored."""
    found: dict[tuple[int, str], PathChange] = {}
    for line in data.split(b"\n"):
        try:
            change = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if change.void:
            found.pop((change.at, change.path), None)
        else:
            found[change.at, change.path] = change
    return list(found.values())


def sha_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _contents_in(records: Iterable[Sequence[PathChange]]) -> set[str]:
    return {change.before.sha for record in records for change in record if change.before and change.before.sha}


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + LOCKED_FOR
        while True:
            try:
                # Polling, since a blocking `flock` has no time limit.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise OSError(errno.EAGAIN, "another process holds the lock on the store of changes") from None
                time.sleep(0.002)
        yield
    finally:
        os.close(descriptor)


MAX_SEEN_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a file whose content is read; a larger one cannot be compared."""

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def seen(directory: int, name: str, *, most: int = MAX_SEEN_BYTES) -> tuple[PathState | None, bytes | None]:
    """Return the state of a name in an open directory, with the content of a file of at most `most` bytes.

    The state is None for a missing path; the content is None for anything but a file, and for a larger file.

    Raises:
        OSError: the path cannot be read.
    """
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None, None
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        return PathState(kind="directory", mode=mode), None
    if stat.S_ISLNK(status.st_mode):
        return PathState(kind="link", target=encoded(os.readlink(name, dir_fd=directory))), None
    if not stat.S_ISREG(status.st_mode):
        return PathState(kind="other", mode=mode), None
    if status.st_size > most:
        return PathState(size=status.st_size, mode=mode), None
    with os.fdopen(os.open(name, _READ_FLAGS, dir_fd=directory), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:  # The file has grown since `stat`.
        return PathState(size=len(data), mode=mode), None
    return PathState(sha=sha_of(data), size=len(data), mode=mode), data


def place_of(change: PathChange) -> AllowedPath:
    """Return the place of a change.

    Raises:
        OSError: a link now replaces its root or a directory above it.
    """
    root = Path(decoded(change.root))
    if os.path.realpath(root) != str(root):
        raise OSError("a directory above the file has become a symbolic link")
    return AllowedPath(root=root, parts=change.parts, shown=str(change.whole))


def present(place: AllowedPath) -> tuple[PathState | None, bytes | None]:
    """Return the current state and content of a place, as `seen` does.

    Both are None for a missing path. A path that is reachable only through a link counts as missing.

    Raises:
        OSError: the path cannot be read.
    """
    try:
        with walked(place.root, place.parts[:-1]) as above:
            return seen(above, place.name)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
