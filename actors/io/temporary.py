"""Temporary files and directories of this process; those of killed processes are removed by the next command.

A process that is killed removes nothing. Whoever removes its files later must be sure that it is dead. Its pid does not
prove that, because pids are reused, and neither does age, because a run may take weeks. A lock does: the kernel
releases `flock` when the last descriptor of it is closed, however the process ends. So each process has one directory
below a base directory, and holds the lock of that directory itself:

    $TMPDIR/callboard-1000/            base: for its owner alone; files that are needed for a moment
        4711-9f2c51d0a7b3/             one process; locked while it has anything in there
            output-51d0a7b39f2c
    ~/.local/state/callboard/tmp/      base: the `/tmp` of runs, which may grow larger than a `/tmp` in memory
    $XDG_RUNTIME_DIR/callboard/        base: sockets of MCP pools

`sweep` removes each directory whose lock is free. Any number of processes may sweep at once.

The lock is on the directory, not on a file in it: programs that empty `/tmp` by age (systemd-tmpfiles) skip directories
that are locked, and would remove a file. The descriptor is closed by `exec`, and a child of `os.fork` closes it, so no
child process keeps the files of a dead parent. File systems that can't lock directories (NFS) are refused as a base.

A `/tmp` is shared with other users. A base there counts only if it is a directory, no symlink, that belongs to us and
that no other user may write to; else the next candidate is used. Everything below it is opened relative to a
descriptor of it and without following symlinks.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple, final

from .directories import cache_dir, private_directory, socket_dir, state_dir

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRWXG | stat.S_IRWXO


class Base(NamedTuple):
    """A directory for the directories of processes.

    Attributes:
        shared: the directory above it is shared with other users, and is not made by us.
    """

    path: Path
    shared: bool = False


def usual_bases(environ: Mapping[str, str] = os.environ) -> list[Base]:
    """Return the candidates for files that are needed for a moment: the first one that can be used counts."""
    named = [environ.get(name) or "" for name in ("TMPDIR", "TEMP", "TMP")]
    places = dict.fromkeys([*filter(os.path.isabs, named), "/tmp", "/var/tmp"])  # noqa: S108 - see the module
    shared = [Base(Path(place, f"callboard-{os.geteuid()}"), shared=True) for place in places]
    return [*shared, Base(state_dir(environ) / "tmp")]


def run_bases(environ: Mapping[str, str] = os.environ) -> list[Base]:
    """Return the candidates for what the processes of a run have as `/tmp`, which may grow large."""
    return list(dict.fromkeys([Base(state_dir(environ) / "tmp"), *usual_bases(environ)]))


def system_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory that other programs use for temporary files."""
    return usual_bases(environ)[0].path.parent


@final
class _Owned:
    """The locked directory of this process below one base; `names` are what is in it."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock
        self.names: set[str] = set()


_owned: dict[Base, _Owned] = {}
_swept: set[Base] = set()
"""Bases that this process has swept: a program that is no command does it with its first directory there."""

_guard = threading.Lock()


def make_directory(prefix: str, *, bases: Sequence[Base] | None = None, name: str = "") -> Path:
    """Make a directory for its owner alone; `remove` it. Blocks.

    Args:
        prefix: of its name, which ends at random.
        bases: candidates; `usual_bases` without any.
        name: all of its name. It may be there already, made by this process.

    Raises:
        OSError: no base can be used.
    """

    def make(place: Path) -> Path:
        path = place / (name or prefix + os.urandom(6).hex())
        path.mkdir(0o700, exist_ok=bool(name))
        return path

    return _made(make, bases)


def make_file(prefix: str, suffix: str = "", *, bases: Sequence[Base] | None = None) -> Path:
    """Make an empty file for its owner alone; as `make_directory`."""

    def make(place: Path) -> Path:
        path = place / f"{prefix}{os.urandom(6).hex()}{suffix}"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return path

    return _made(make, bases)


def reserve(prefix: str, suffix: str, *, bases: Sequence[Base]) -> Path:
    """Return a path for a file that the caller makes, such as a socket; `remove` it. Raises as `make_directory`."""

    def make(place: Path) -> Path:
        taken = next(owned.names for owned in _owned.values() if owned.path == place)
        names = (f"{prefix}{suffix}" if n == 1 else f"{prefix}.{n}{suffix}" for n in count(1))
        return place / next(name for name in names if name not in taken)

    return _made(make, bases)


def remove(path: Path) -> None:
    """Remove what was made here, and the directory of this process if nothing else is in it. Blocks; raises nothing."""
    _remove_tree(str(path), None)
    with _guard:
        for base, owned in list(_owned.items()):
            if owned.path == path.parent:
                owned.names.discard(path.name)
                if not owned.names:
                    _release(base, owned)


@contextmanager
def directory(prefix: str) -> Iterator[Path]:
    """Make a directory that is removed at the end of the block. Raises as `make_directory`."""
    path = make_directory(prefix)
    try:
        yield path
    finally:
        remove(path)


@contextmanager
def file(prefix: str, suffix: str = "") -> Iterator[Path]:
    """Make an empty file that is removed at the end of the block. Raises as `make_directory`."""
    path = make_file(prefix, suffix)
    try:
        yield path
    finally:
        remove(path)


@final
class LazyDirectory:
    """Temporary directory that is made when it is first needed. Its methods block, in any thread.

    Args:
        name: two of one name are the same directory.
        bases: gives what `make_directory` takes, when the directory is made. Most runs never need theirs.
    """

    def __init__(self, name: str, bases: Callable[[], Sequence[Base]] | None = None) -> None:
        self._name = name
        self._bases = bases
        self._path: Path | None = None

    def path(self) -> Path:
        """Return its path. It exists. Raises as `make_directory`."""
        if self._path is None or not self._path.is_dir():
            bases = None if self._bases is None else self._bases()
            self._path = make_directory("", bases=bases, name=self._name)
        return self._path

    @property
    def is_made(self) -> bool:
        """Whether there is something to remove."""
        return self._path is not None

    def remove(self) -> None:
        """Remove it, if it was made."""
        path, self._path = self._path, None
        if path is not None:
            remove(path)


def sweep(environ: Mapping[str, str] = os.environ) -> None:
    """Remove the files of killed processes. Blocks; raises nothing. Costs a few system calls where there are none."""
    bases = [*run_bases(environ), Base(socket_dir(environ, cache_dir(environ)))]
    for base in dict.fromkeys(bases):
        _swept.add(base)
        with suppress(OSError):
            handle = _opened(base)
            try:
                _sweep(handle)
            finally:
                os.close(handle)
    _sweep_files(state_dir(environ) / "present")


def sweep_directory(place: Path, prefix: str) -> None:
    """Remove the directories with this prefix whose `locked_directory` was left by a killed process."""
    with suppress(OSError):
        handle = os.open(place, _DIRECTORY)
        try:
            _sweep(handle, prefix)
        finally:
            os.close(handle)


@contextmanager
def locked_directory(place: Path, prefix: str) -> Iterator[Path]:
    """Make a directory in `place`, to be renamed within its file system; removed at the end if it was not.

    Raises:
        OSError: it can't be made.
    """
    sweep_directory(place, prefix)
    handle = os.open(place, _DIRECTORY)
    try:
        name, lock = _locked(handle, prefix)
    finally:
        os.close(handle)
    try:
        yield place / name
    finally:
        _remove_tree(str(place / name), None)
        os.close(lock)


def _made(make: Callable[[Path], Path], bases: Sequence[Base] | None) -> Path:
    failed: OSError | None = None
    for base in bases or usual_bases():
        with _guard:
            for _ in range(2):
                try:
                    owned = _owned.get(base) or _claim(base)
                    path = make(owned.path)
                except FileNotFoundError as error:  # something has emptied the temporary directory: begin again
                    failed = error
                    _forget(base)
                except OSError as error:
                    failed = error
                    break
                else:
                    owned.names.add(path.name)
                    return path
            if base in _owned and not _owned[base].names:
                _release(base, _owned[base])
    assert failed is not None
    raise failed


def _claim(base: Base) -> _Owned:
    if not base.shared:
        private_directory(base.path)
    else:
        with suppress(FileExistsError):
            base.path.mkdir(0o700)
    handle = _opened(base)
    try:
        if base not in _swept:
            _swept.add(base)
            _sweep(handle)
        name, lock = _locked(handle, "")
    finally:
        os.close(handle)
    if not _owned:
        atexit.unregister(_remove_all)
        atexit.register(_remove_all)
    owned = _owned[base] = _Owned(base.path / name, lock)
    return owned


def _locked(base: int, prefix: str) -> tuple[str, int]:
    """Make a directory and lock it; its name and the descriptor that holds the lock."""
    while True:
        name = f"{prefix}{os.getpid()}-{os.urandom(6).hex()}"
        os.mkdir(name, 0o700, dir_fd=base)
        # Before it is locked, a sweeping process may take it for left: then it is locked by that one, or gone.
        try:
            lock = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=base)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.stat(name, dir_fd=base, follow_symlinks=False)
        except (BlockingIOError, FileNotFoundError):
            os.close(lock)
            continue
        except OSError:  # no locks on this file system
            os.close(lock)
            with suppress(OSError):
                os.rmdir(name, dir_fd=base)
            raise
        return name, lock


def _opened(base: Base) -> int:
    """Open a base that is safe to use.

    Raises:
        OSError: it is not there, or is not ours alone.
    """
    handle = os.open(base.path, _DIRECTORY | (os.O_NOFOLLOW if base.shared else 0))
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
            raise PermissionError(errno.EPERM, "it belongs to another user, or others may write to it", str(base.path))
        if found.st_mode & _OTHERS_READ:
            os.fchmod(handle, 0o700)
    except OSError:
        os.close(handle)
        raise
    return handle


def _sweep(base: int, prefix: str = "") -> None:
    with os.scandir(base) as entries:
        names = [entry.name for entry in entries if _is_of_process(entry.name, prefix)]
    for name in names:
        with suppress(OSError):
            lock = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=base)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_tree(name, base)
            finally:
                os.close(lock)


def _is_of_process(name: str, prefix: str) -> bool:
    pid, _, token = name.removeprefix(prefix).partition("-")
    return name.startswith(prefix) and pid.isdecimal() and len(token) == 12


def _sweep_files(place: Path) -> None:
    """Remove the files in a directory of ours that no process holds a lock of."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with suppress(OSError):
                lock = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    Path(entry.path).unlink()
                finally:
                    os.close(lock)


def _release(base: Base, owned: _Owned) -> None:
    """Remove our directory and unlock it; what could not be removed stays ours."""
    try:
        owned.path.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return
    _forget(base)


def _forget(base: Base) -> None:
    owned = _owned.pop(base, None)
    if owned is not None:
        os.close(owned.lock)


def _remove_all() -> None:
    """At the normal end of the process: remove what is still there."""
    with _guard:
        for base, owned in list(_owned.items()):
            _remove_tree(str(owned.path), None)
            _forget(base)


def _forked() -> None:
    """In a forked child: what the parent has made is not ours to remove, and its lock not ours to hold."""
    global _guard
    _guard = threading.Lock()
    _swept.clear()
    for base in list(_owned):
        _forget(base)


os.register_at_fork(after_in_child=_forked)


def _remove_tree(name: str, base: int | None) -> None:
    """Remove a file, or a directory with all in it."""
    try:
        os.unlink(name, dir_fd=base)
    except FileNotFoundError:
        return
    except OSError:  # EISDIR on Linux, EPERM elsewhere
        import shutil  # takes 5 ms, which a process without temporary directories saves

        shutil.rmtree(name, ignore_errors=True, dir_fd=base)
        with suppress(OSError):
            os.stat(name, dir_fd=base, follow_symlinks=False)
            _allow_removal(name, base)  # directories without write permission, such as those of Go's module cache
            shutil.rmtree(name, ignore_errors=True, dir_fd=base)


def _allow_removal(name: str, base: int | None) -> None:
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=base)
    try:
        Path(f"/proc/self/fd/{handle}").chmod(0o700)  # not by name: it could be a symlink by now
        with os.scandir(f"/proc/self/fd/{handle}") as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for each in names:
            with suppress(OSError):
                _allow_removal(each, handle)
    finally:
        os.close(handle)
