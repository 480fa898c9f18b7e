"""Decides which files the `fs_*` tools may touch, and opens them safely (no swapped links).

A path that a model wrote is made real once: `..` and symbolic links are resolved, and what comes out has to lie below
an allowed root. Checking alone would not do, since a command that runs beside us may put a link in the way between the
check and the use. So the file is opened from its root downwards, one directory at a time, each by the descriptor of
the one above it, and no link is followed any more: what was put there in the meantime is refused. So is a path that
leads elsewhere than it did when the call was permitted (`FileAccess`), however long a person thought about it.

Refused as well: a NUL, `~` (it is not expanded here, and a directory of that name is a mistake), what lies in /proc,
/sys or /dev, and whatever is neither a file nor a directory, such as a pipe that would keep us waiting. Hard links are
files like any other; who can make one below a root could have copied the file.

Everything here blocks and belongs into a thread (`in_thread`).
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
from ..path_rules import FileAccess

T = TypeVar("T")

_KERNEL = tuple(Path(name) for name in ("/proc", "/sys", "/dev"))
_DOWN = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class AllowedPath(msgspec.Struct, frozen=True, kw_only=True):
    """Where a path leads: below `root` (real, without links), down `parts`; `shown` is what the model wrote, `access`
    what else its call may come across."""

    root: Path
    parts: tuple[str, ...]
    shown: str
    access: FileAccess = FileAccess()

    @property
    def path(self) -> Path:
        """The real path, for those who can't use a descriptor."""
        return self.root.joinpath(*self.parts)

    @property
    def name(self) -> str:
        """The last part; empty for a root."""
        return self.parts[-1] if self.parts else ""

    def shows(self) -> Callable[[os.DirEntry[str]], bool]:
        """Tells of an entry of this directory whether it may be shown; of a link, also by where it leads."""
        if not self.access.bars:
            return lambda _: True
        base = str(self.path).rstrip("/")

        def shows(entry: os.DirEntry[str]) -> bool:
            path = f"{base}/{entry.name}"
            return not self.access.hides(path, *((os.path.realpath(path),) if entry.is_symlink() else ()))

        return shows

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor for reading it, file or directory.

        Raises:
            ToolFailed: it is not there, is of a kind that has no contents, or may not be read.
        """
        with explained(self), walked(self.root, self.parts[:-1]) as above:
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
        """A descriptor of the directory that it is in, for changing it there; `make` the directories that are missing.

        Args:
            make: whether to.
            made: gets their depths: how many of `parts` lead to each.

        Raises:
            ToolFailed: there is no such directory, or it is a root, which has nothing above it for us.
        """
        if not self.parts:
            raise ToolFailed(f"'{self.shown}' is one of the directories that may be used as a whole; name one in it")
        with explained(self), walked(self.root, self.parts[:-1], make=make, made=made) as path_only:
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=path_only)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def make_directory(self) -> list[int]:
        """Make it and what is missing above it; the depths of what was missing."""
        made: list[int] = []
        with explained(self), walked(self.root, self.parts, make=True, made=made):
            return made


class AllowedPaths:
    """The allowed roots.

    Args:
        roots: directories; their own links are resolved now.
        here: what relative paths are seen from.
    """

    def __init__(self, roots: Sequence[Path], here: Path) -> None:
        self.here = here
        self.roots = tuple(Path(os.path.realpath(root)) for root in roots)
        self._access = FileAccess()

    def within(self, access: FileAccess) -> AllowedPaths:
        """The same for one call, which may see no more than that."""
        lower = copy.copy(self)
        lower._access = access  # noqa: SLF001 - a copy of our own
        return lower

    def beside(self, directory: Path) -> AllowedPaths:
        """The same for one call that only reads, which may look into this directory too."""
        wider = copy.copy(self)
        wider.roots = (*self.roots, Path(os.path.realpath(directory)))
        return wider

    def find(self, text: str, *, follow: bool = True) -> AllowedPath:
        """Where a path of a model leads. It need not exist.

        Args:
            text: as the model wrote it; empty for the working directory.
            follow: whether a link at its end is resolved too, or meant itself.

        Raises:
            ToolFailed: it can't be a path, leads outside of the roots, or elsewhere than where it led when the call was
                permitted.
        """
        if "\0" in text:
            raise ToolFailed("a path can't contain a NUL character")
        if text.startswith("~"):
            raise ToolFailed(f"'{text}': '~' is not expanded here; write the absolute path")
        try:
            real = _real(self.here, text, follow=follow)
        except (UnicodeError, ValueError) as error:
            raise ToolFailed(f"{text!r} can't be the path of a file: {error}") from error
        root = max(
            (root for root in self.roots if real.is_relative_to(root)), key=lambda root: len(root.parts), default=None
        )
        if root is None:
            leads = "" if str(real) == text else f" (it leads to {real})"
            allowed = ", ".join(map(str, self.roots))
            raise ToolFailed(f"'{text}' is outside of what may be used{leads}; allowed: {allowed} and what is below")
        for kernel in _KERNEL:
            if real.is_relative_to(kernel) and not root.is_relative_to(kernel):
                raise ToolFailed(f"'{text}' is in {kernel}, where there are no files of yours")
        if self._access.moved(str(real)):
            raise ToolFailed(
                f"'{text}' leads elsewhere since a moment ago; links that change meanwhile are not followed"
            )
        if self._access.hides(os.path.normpath(os.path.join(self.here, text)), str(real)):  # noqa: PTH118 - links are kept
            raise ToolFailed(f"'{text}' was not touched: the permissions deny it")
        return AllowedPath(root=root, parts=real.relative_to(root).parts, shown=text or ".", access=self._access)


async def in_thread(work: Callable[[], T], *, changes: bool = False) -> T:
    """Do blocking work beside the loop. Long work calls `check_cancelled` now and then.

    Args:
        changes: whether it changes files: then it is waited for when it is cancelled, so that nothing is changed after
            the call is over. What only looks may hang on a dead network disk, and is left alone there.
    """
    return await trio.to_thread.run_sync(work, abandon_on_cancel=not changes)


@contextlib.contextmanager
def explained(place: AllowedPath) -> Iterator[None]:
    """Say what went wrong with a file so that the model can mend it."""
    try:
        yield
    except OSError as error:
        raise ToolFailed(_words(place, error)) from error


def regular(place: AllowedPath, descriptor: int) -> int:
    """The size of an open file; a directory is refused."""
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailed(f"'{place.shown}' is a directory, not a file")
    return status.st_size


def _real(here: Path, text: str, *, follow: bool) -> Path:
    whole = os.path.join(here, text)  # noqa: PTH118 - pathlib would drop a final `/.`
    os.fsencode(whole)
    head, tail = os.path.split(whole.rstrip("/"))
    if follow or tail in ("", ".", ".."):
        return Path(os.path.realpath(whole))
    return Path(os.path.realpath(head)) / tail


@contextlib.contextmanager
def walked(root: Path, parts: Sequence[str], *, make: bool = False, made: list[int] | None = None) -> Iterator[int]:
    """A descriptor of the directory down `parts`, reached without following a link; `make`, `made` as for `above`."""
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
            return f"'{shown}': a file stands where a directory should, or a link was put there a moment ago"
        case errno.ELOOP:
            return f"'{shown}' is a symbolic link since a moment ago; links that change meanwhile are not followed"
        case errno.EISDIR:
            return f"'{shown}' is a directory"
        case errno.ENXIO:
            return f"'{shown}' is neither a file nor a directory"
        case errno.EACCES | errno.EPERM:
            return f"'{shown}' may not be used: {error.strerror} (the permissions of the file system)"
        case _:
            return f"'{shown}': {error.strerror or error}"


def _near(place: AllowedPath) -> str:
    """What the model may have meant: the first part that is missing, and names that look like it."""
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
                names = [name for name in names if not place.access.hides(str(where / name))]
                alike = difflib.get_close_matches(part, names[:1000], n=3)
                hint = f"; similar: {', '.join(alike)}" if alike else ""
                return f" (there is no '{part}' in {where}{hint})"
    except OSError:
        pass
    return ""


_KINDS = {stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket"}


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Shared by all built-in tools of a table.

    Attributes:
        environ: for commands, for proxies, and for the addresses of the services.
        paths: what `fs_*` may touch.
        timeout: seconds of one call.
        keeps: what files hold before a run changes them is kept (`changes`).
    """

    environ: Mapping[str, str]
    paths: AllowedPaths
    timeout: float
    keeps: bool = True
