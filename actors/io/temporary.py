"""Temporary files and directories of this process; the next command removes leftovers of killed processes.

A killed process removes nothing. The cleaner must be sure that the process is dead. Its pid does not prove that,
because pids are reused, and neither does age, because a run may take weeks. A lock does: the kernel releases `flock`
when its last descriptor is closed, however the process ends. So each process has one directory below a base directory,
and holds the lock of that directory itself:

    $TMPDIR/callboard-1000/            base: private; short-lived files
        4711-9f2c51d0a7b3/             one process; locked while it contains anything
            output-51d0a7b39f2c
    ~/.local/state/callboard/tmp/      base: the `/tmp` of runs, which may exceed a `/tmp` in memory
    $XDG_RUNTIME_DIR/callboard/        base: sockets of MCP pools

`sweep` removes each directory with a free lock. Any number of processes may sweep at once.

The lock is on the directory, not on a file in it: programs that clean `/tmp` by age (systemd-tmpfiles) skip locked
directories, but would remove a file. The descriptor is closed by `exec`, and a child of `os.fork` closes it, so no
child process retains the files of a dead parent. File systems that can't lock directories (NFS) are refused as a base.

A `/tmp` is shared with other users. A base there is used only if it is a directory, not a symlink, owned by this user,
and not writable for others; otherwise the next candidate is used. Everything below it is opened relative to a
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


class ProcessDirectoryBase(NamedTuple):
    """Base directory for the directories of processes.

    Attributes:
        shared: True if its parent is shared with other users, and is not created.
    """

    path: Path
    shared: bool = False


def usual_bases(environ: Mapping[str, str] = os.environ) -> list[ProcessDirectoryBase]:
    """Return the candidates for short-lived files; the first usable one is used."""
    named = [environ.get(name) or "" for name in ("TMPDIR", "TEMP", "TMP")]
    places = dict.fromkeys([*filter(os.path.isabs, named), "/tmp", "/var/tmp"])  # noqa: S108 - see the module
    shared = [ProcessDirectoryBase(Path(place, f"callboard-{os.geteuid()}"), shared=True) for place in places]
    return [*shared, ProcessDirectoryBase(state_dir(environ) / "tmp")]


def run_bases(environ: Mapping[str, str] = os.environ) -> list[ProcessDirectoryBase]:
    """Return the candidates for the `/tmp` of a run's processes, which may grow large."""
    return list(dict.fromkeys([ProcessDirectoryBase(state_dir(environ) / "tmp"), *usual_bases(environ)]))


def system_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory that other programs use for temporary files."""
    return usual_bases(environ)[0].path.parent


@final
class _Owned:
    """Locked directory of this process below one base; `names` are its entries."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock
        self.names: set[str] = set()


_owned: dict[ProcessDirectoryBase, _Owned] = {}
_swept: set[ProcessDirectoryBase] = set()
"""Bases that this process has swept; a program without a command sweeps when it creates its first directory there."""

_guard = threading.Lock()


def make_directory(prefix: str, *, bases: Sequence[ProcessDirectoryBase] | None = None, name: str = "") -> Path:
    """Create a private directory; delete it with `remove`. Blocks.

    Args:
        prefix: start of its name, which ends at random.
        bases: candidates; default `usual_bases`.
        name: complete name. The directory may exist if this process created it.

    Raises:
        OSError: no base is usable.
    """

    def make(place: Path) -> Path:
        path = place / (name or prefix + os.urandom(6).hex())
        path.mkdir(0o700, exist_ok=bool(name))
        return path

    return _made(make, bases)


def make_file(prefix: str, suffix: str = "", *, bases: Sequence[ProcessDirectoryBase] | None = None) -> Path:
    """Create an empty private file; arguments and errors as in `make_directory`."""

    def make(place: Path) -> Path:
        path = place / f"{prefix}{os.urandom(6).hex()}{suffix}"
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return path

    return _made(make, bases)


def reserve(prefix: str, suffix: str, *, bases: Sequence[ProcessDirectoryBase]) -> Path:
    """Return an unused path for a file that the caller creates, such as a socket; delete it with `remove`.

    Raises as `make_directory`.
    """

    def make(place: Path) -> Path:
        taken = next(owned.names for owned in _owned.values() if owned.path == place)
        names = (f"{prefix}{suffix}" if n == 1 else f"{prefix}.{n}{suffix}" for n in count(1))
        return place / next(name for name in names if name not in taken)

    return _made(make, bases)


def remove(path: Path) -> None:
    """Delete an entry, and the directory of this process if it is empty then. Blocks; raises nothing."""
    _remove_tree(str(path), None)
    with _guard:
        for base, owned in list(_owned.items()):
            if owned.path == path.parent:
                owned.names.discard(path.name)
                if not owned.names:
                    _release(base, owned)


@contextmanager
def directory(prefix: str) -> Iterator[Path]:
    """Create a directory that is deleted at the end of the block. Raises as `make_directory`."""
    path = make_directory(prefix)
    try:
        yield path
    finally:
        remove(path)


@contextmanager
def file(prefix: str, suffix: str = "") -> Iterator[Path]:
    """Create an empty file that is deleted at the end of the block. Raises as `make_directory`."""
    path = make_file(prefix, suffix)
    try:
        yield path
    finally:
        remove(path)


@final
class LazyDirectory:
    """Temporary directory that is created on demand. Its methods block, in any thread.

    Args:
        name: two objects with the same name share a directory.
        bases: returns the candidates for `make_directory`, on demand. Most runs never need a directory.
    """

    def __init__(self, name: str, bases: Callable[[], Sequence[ProcessDirectoryBase]] | None = None) -> None:
        self._name = name
        self._bases = bases
        self._path: Path | None = None

    def path(self) -> Path:
        """Return its path, creating it if necessary. Raises as `make_directory`."""
        if self._path is None or not self._path.is_dir():
            bases = None if self._bases is None else self._bases()
            self._path = make_directory("", bases=bases, name=self._name)
        return self._path

    @property
    def is_made(self) -> bool:
        """True if the directory was created, so that it must be removed."""
        return self._path is not None

    def remove(self) -> None:
        """Delete it, if it was created."""
        path, self._path = self._path, None
        if path is not None:
            remove(path)


def sweep(environ: Mapping[str, str] = os.environ) -> None:
    """Delete the files of killed processes. Blocks; raises nothing. Costs a few system calls if there are none."""
    bases = [*run_bases(environ), ProcessDirectoryBase(socket_dir(environ, cache_dir(environ)))]
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
    """Delete directories with this prefix that a killed process left behind in `locked_directory`."""
    with suppress(OSError):
        handle = os.open(place, _DIRECTORY)
        try:
            _sweep(handle, prefix)
        finally:
            os.close(handle)


@contextmanager
def locked_directory(place: Path, prefix: str) -> Iterator[Path]:
    """Create a directory in `place`, to be renamed within its file system; it is deleted at the end if it was not.

    Raises:
        OSError: it can't be created.
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


def _made(make: Callable[[Path], Path], bases: Sequence[ProcessDirectoryBase] | None) -> Path:
    failed: OSError | None = None
    for base in bases or usual_bases():
        with _guard:
            for _ in range(2):
                try:
                    owned = _owned.get(base) or _claim(base)
                    path = make(owned.path)
                except FileNotFoundError as error:  # the temporary directory was emptied: start again
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


def _claim(base: ProcessDirectoryBase) -> _Owned:
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
    """Create a directory and lock it; return its name and the descriptor that holds the lock."""
    while True:
        name = f"{prefix}{os.getpid()}-{os.urandom(6).hex()}"
        os.mkdir(name, 0o700, dir_fd=base)
        # Until it is locked, a sweeping process may consider it orphaned: then that process has locked or removed it.
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


def _opened(base: ProcessDirectoryBase) -> int:
    """Open a base that is safe to use, after removing the access of other users who could only read it.

    Raises:
        OSError: it does not exist, is a link in a shared directory, or another user owns it or may write to it.
    """
    handle = os.open(base.path, _DIRECTORY | (os.O_NOFOLLOW if base.shared else 0))
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
            raise PermissionError(
                errno.EPERM, "the directory belongs to another user, or other users may write to it", str(base.path)
            )
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
    """Delete the files of a directory that no process has locked."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            with suppress(OSError):
                lock = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    Path(entry.path).unlink()
                finally:
                    os.close(lock)


def _release(base: ProcessDirectoryBase, owned: _Owned) -> None:
    """Delete the process directory and unlock it; if it can't be deleted, it remains locked."""
    try:
        owned.path.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return
    _forget(base)


def _forget(base: ProcessDirectoryBase) -> None:
    owned = _owned.pop(base, None)
    if owned is not None:
        os.close(owned.lock)


def _remove_all() -> None:
    """Delete remaining files at the normal end of the process."""
    with _guard:
        for base, owned in list(_owned.items()):
            _remove_tree(str(owned.path), None)
            _forget(base)


def _forked() -> None:
    """In a forked child, forget the parent's directories: the child must neither delete them nor hold their locks."""
    global _guard
    _guard = threading.Lock()
    _swept.clear()
    for base in list(_owned):
        _forget(base)


os.register_at_fork(after_in_child=_forked)


def _remove_tree(name: str, base: int | None) -> None:
    """Delete a file, or a directory with its content."""
    try:
        os.unlink(name, dir_fd=base)
    except FileNotFoundError:
        return
    except OSError:  # EISDIR on Linux, EPERM on other systems
        import shutil  # takes 5 ms, which a process without temporary directories saves

        shutil.rmtree(name, ignore_errors=True, dir_fd=base)
        with suppress(OSError):
            os.stat(name, dir_fd=base, follow_symlinks=False)
            _allow_removal(name, base)  # directories without write permission, such as Go's module cache
            shutil.rmtree(name, ignore_errors=True, dir_fd=base)


def _allow_removal(name: str, base: int | None) -> None:
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=base)
    try:
        Path(f"/proc/self/fd/{handle}").chmod(0o700)  # not by name, which could have become a symlink
        with os.scandir(f"/proc/self/fd/{handle}") as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for each in names:
            with suppress(OSError):
                _allow_removal(each, handle)
    finally:
        os.close(handle)
