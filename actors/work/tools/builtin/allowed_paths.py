"""Path checks of the `fs_*` tools, and race-free opening of files.

A path from a model is resolved once, with `..` and symbolic links, and the result must be below an allowed root. The
check alone is not enough: a command that runs concurrently may swap a link in between the check and the use. Therefore
the file is opened from its root downwards, each directory by the descriptor of its parent, without following any link.
A link that was swapped in is refused. A path is also refused if it resolves differently than when the call was
permitted (`FileAccess`), however long the user took for the answer.

Also refused are: a NUL; `~`, which is not expanded here, so a directory of that name would be a mistake; paths in
/proc, /sys or /dev; and everything that is neither a file nor a directory, such as a pipe, which would block. Hard
links are treated as files: a process that can create one below a root could have copied the file.

All functions block and belong into a thread (`in_thread`).
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from .....protocol.errors import ToolFailed
from ..rules import FileAccess

T = TypeVar("T")

_KERNEL = tuple(Path(name) for name in ("/proc", "/sys", "/dev"))
# O_PATH needs no read permission on the directories of the way, only search permission.
_DOWN = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class AllowedPath(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved path below an allowed root.

    Attributes:
        root: the allowed directory, real and without links.
        parts: path components below `root`.
        shown: the path as the model wrote it.
        access: rules for other files that the call opens.
    """

    root: Path
    parts: tuple[str, ...]
    shown: str
    access: FileAccess = FileAccess()

    @property
    def path(self) -> Path:
        """The real path, for callers that cannot use a descriptor."""
        return self.root.joinpath(*self.parts)

    @property
    def name(self) -> str:
        """The last component; empty for a root."""
        return self.parts[-1] if self.parts else ""

    def shows(self) -> Callable[[os.DirEntry[str]], bool]:
        """Return a predicate that is True for an entry of this directory that may be listed.

        A link must be allowed at its target too.
        """
        if not self.access.bars:
            return lambda _: True
        base = str(self.path).rstrip("/")

        def shows(entry: os.DirEntry[str]) -> bool:
            path = f"{base}/{entry.name}"
            return not self.access.hides(path, *((os.path.realpath(path),) if entry.is_symlink() else ()))

        return shows

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a descriptor for reading the file or directory.

        Raises:
            ToolFailed: it does not exist, is neither a file nor a directory, or may not be read.
        """
        with explained(self), walked(self.root, self.parts[:-1]) as above:
            # O_NONBLOCK in `_READ`: opening a FIFO must not wait for its writer. Its kind is checked below.
            descriptor = os.open(self.name, _READ, dir_fd=above) if self.parts else os.open(self.root, _READ)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                kind = _KINDS.get(stat.S_IFMT(mode), "device")
                raise ToolFailed(f"'{self.shown}' is neither a file nor a directory, but a {kind}")
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def above(self, *, make: bool = False, made: list[int] | None = None) -> Iterator[int]:
        """Yield a descriptor of the parent directory, for changes in it.

        Args:
            make: create missing directories.
            made: receives the depths of created directories: the number of `parts` that lead to each.

        Raises:
            ToolFailed: there is no such directory, or the path is a root, whose parent is not accessible.
        """
        if not self.parts:
            raise ToolFailed(
                f"'{self.shown}' is itself an allowed directory and can't be changed as a whole; name a path in it"
            )
        with explained(self), walked(self.root, self.parts[:-1], make=make, made=made) as path_only:
            # An O_PATH descriptor supports neither `flock` nor listing, so the directory is opened again through it.
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=path_only)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def make_directory(self) -> list[int]:
        """Create the directory and its missing parents; return the depths of the created ones."""
        made: list[int] = []
        with explained(self), walked(self.root, self.parts, make=True, made=made):
            return made


class AllowedPaths:
    """The allowed roots of a run.

    Args:
        roots: directories; links in them are resolved now.
        here: base of relative paths.
    """

    def __init__(self, roots: Sequence[Path], here: Path) -> None:
        self.here = here
        self.roots = tuple(Path(os.path.realpath(root)) for root in roots)
        self._access = FileAccess()

    def within(self, access: FileAccess) -> AllowedPaths:
        """Return a copy for one call, restricted to this access."""
        lower = copy.copy(self)
        lower._access = access  # noqa: SLF001 - a copy of our own
        return lower

    def with_root(self, directory: Path) -> AllowedPaths:
        """Return a copy for one call that only reads, with this directory as a further root."""
        wider = copy.copy(self)
        wider.roots = (*self.roots, Path(os.path.realpath(directory)))
        return wider

    def find(self, text: str, *, follow: bool = True) -> AllowedPath:
        """Resolve a path from a model. The file need not exist.

        Args:
            text: as the model wrote it; empty for the working directory.
            follow: resolve a link at its end; False if the link itself is the object of the call.

        Raises:
            ToolFailed: the path is invalid, begins with `~`, is outside of the roots or in a directory of the kernel,
                is denied by `permissions`, or resolves differently than when the call was permitted.
        """
        if "\0" in text:
            raise ToolFailed("a path can't contain a NUL character")
        if text.startswith("~"):
            raise ToolFailed(f"'{text}': '~' is not expanded; write the absolute path")
        try:
            real = _real(self.here, text, follow=follow)
        except (UnicodeError, ValueError) as error:
            raise ToolFailed(f"{text!r} is not a valid path: {error}") from error
        root = max(
            (root for root in self.roots if real.is_relative_to(root)), key=lambda root: len(root.parts), default=None
        )
        if root is None:
            leads = "" if str(real) == text else f" (it leads to {real})"
            allowed = ", ".join(map(str, self.roots))
            raise ToolFailed(
                f"'{text}' is outside of the allowed directories{leads}; allowed: {allowed} and everything below"
            )
        # A root such as `/` contains kernel files, which only a root below /proc, /sys or /dev makes accessible.
        for kernel in _KERNEL:
            if real.is_relative_to(kernel) and not root.is_relative_to(kernel):
                raise ToolFailed(f"'{text}' is in {kernel}, which has no files of the user")
        # The approval may have taken minutes: the path must still resolve to a path that was judged.
        if self._access.moved(str(real)):
            raise ToolFailed(f"the target of '{text}' changed during the call, so it was not followed; try again")
        if self._access.hides(os.path.normpath(os.path.join(self.here, text)), str(real)):  # noqa: PTH118 - links are kept
            raise ToolFailed(f"'{text}' was not accessed: `permissions` denies it")
        return AllowedPath(root=root, parts=real.relative_to(root).parts, shown=text or ".", access=self._access)


async def in_thread(work: Callable[[], T], *, changes: bool = False) -> T:
    """Run blocking work in a thread. Long work must call `check_cancelled` periodically.

    Args:
        changes: the work changes files. On cancellation it is then awaited, so that nothing changes after the call has
            ended. Work that only reads may hang on a dead network disk, so it is abandoned.
    """
    return await trio.to_thread.run_sync(work, abandon_on_cancel=not changes)


@contextlib.contextmanager
def explained(place: AllowedPath) -> Iterator[None]:
    """Convert `OSError` to `ToolFailed`, with a text that lets the model correct the call."""
    try:
        yield
    except OSError as error:
        raise ToolFailed(_words(place, error)) from error


def regular(place: AllowedPath, descriptor: int) -> int:
    """Return the size of an open file in bytes. Raises `ToolFailed` for a directory."""
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailed(f"'{place.shown}' is a directory, not a file")
    return status.st_size


def _real(here: Path, text: str, *, follow: bool) -> Path:
    whole = os.path.join(here, text)  # noqa: PTH118 - pathlib would drop a final `/.`
    os.fsencode(whole)
    head, tail = os.path.split(whole.rstrip("/"))
    # A path that ends with `.` or `..` names a directory, so there is no link of its own to act on.
    if follow or tail in ("", ".", ".."):
        return Path(os.path.realpath(whole))
    return Path(os.path.realpath(head)) / tail


@contextlib.contextmanager
def walked(root: Path, parts: Sequence[str], *, make: bool = False, made: list[int] | None = None) -> Iterator[int]:
    """Yield a descriptor of the directory at `parts`, reached without following links.

    `make` and `made` are as for `above`.
    """
    # The root may be a link: the user has chosen it. Links below it are refused.
    descriptor = os.open(root, _DOWN & ~os.O_NOFOLLOW)
    try:
        for depth, part in enumerate(parts, 1):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
                    if made is not None:
                        made.append(depth)
            below = os.open(part, _DOWN, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _words(place: AllowedPath, error: OSError) -> str:
    shown = place.shown
    match error.errno:
        case errno.ENOENT:
            return f"'{shown}' does not exist{_near(place)}"
        case errno.ENOTDIR:
            return (
                f"'{shown}': a part of the path is not a directory, or was replaced by a symbolic link during the call"
            )
        case errno.ELOOP:
            return f"'{shown}' was replaced by a symbolic link during the call, so it was not followed; try again"
        case errno.EISDIR:
            return f"'{shown}' is a directory"
        case errno.ENXIO:
            return f"'{shown}' is neither a file nor a directory"
        case errno.EACCES | errno.EPERM:
            return f"'{shown}' can't be accessed: {error.strerror} (permissions of the file system)"
        case _:
            return f"'{shown}': {error.strerror or error}"


def _near(place: AllowedPath) -> str:
    """Return a hint for a missing path: its first missing component, and similar names."""
    try:
        for depth, part in enumerate(place.parts):
            with walked(place.root, place.parts[:depth]) as directory:
                there = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
            try:
                names = os.listdir(there)  # noqa: PTH208 - by descriptor
            finally:
                os.close(there)
            if part not in names:
                where = place.root.joinpath(*place.parts[:depth])
                # A hint must not reveal names that the permissions hide.
                names = [name for name in names if not place.access.hides(str(where / name))]
                alike = difflib.get_close_matches(part, names[:1000], n=3)
                hint = f"; similar: {', '.join(alike)}" if alike else ""
                return f" (there is no '{part}' in {where}{hint})"
    except OSError:
        pass
    return ""


_KINDS = {stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket"}


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Settings shared by all built-in tools of a table.

    Attributes:
        environ: for commands, proxies, and the addresses of services.
        paths: the allowed paths of `fs_*`.
        timeout: seconds of one call.
        keeps: store the earlier content of files that a run changes (`changes`).
    """

    environ: Mapping[str, str]
    paths: AllowedPaths
    timeout: float
    keeps: bool = True
