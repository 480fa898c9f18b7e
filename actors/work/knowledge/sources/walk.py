"""Files on disk: search in the order of names, and reading. Each file is found once, even if several links lead to it.

In directories, these are skipped: hidden files (`.x`), version control, Python's caches, and knowledge bases (an
agent's own base is stored next to its files). A path that is named explicitly is not skipped. Links are followed, but
not into cycles. Pipes, sockets and devices are only reported: opening one may block for ever. `Walk` blocks;
call it in a thread, as `listed` does.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, final

import msgspec
import trio

from .....protocol.errors import UsageError
from .....protocol.knowledge import Document, Unreadable
from ..base.layout import ENDING, BaseLayout
from ..reading.limits import CantRead
from ..reading.read import RawDocument
from .found import FoundSource, SourceContext, explained
from .specs import is_wild

LEFT_OUT = frozenset(("CVS", "_darcs", "__pycache__"))
_KERNEL = ("/proc", "/sys", "/dev")

Id = tuple[int, int]


class WalkedFile(msgspec.Struct, frozen=True):
    """Found file, or (with `problem`) an unreadable path with the reason."""

    path: str
    size: int = 0
    mtime: float = 0.0
    problem: str = ""


class _Enough(Exception):
    """There are more files than the limit."""


class Walk:
    """Search for files, with state that skips duplicates.

    Args:
        most: most files to return.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: list[WalkedFile] = []
        self._files: set[Id] = set()
        self._searched: set[tuple[Id, int, int]] = set()
        self._listed: set[Id] = set()
        self._kernel = _devices(_KERNEL) - _devices(("/",))

    def named(self, root: str, target: str) -> list[WalkedFile]:
        """Add the files that a path names: a file, the files of a directory, or the matches of a glob.

        Return all files that this walk has found so far. A path without a file is an entry with a `problem`.

        Args:
            root: directory that `target` is relative to.

        Raises:
            UsageError: the glob is invalid.
        """
        path = os.path.join(root, target)  # noqa: PTH118 - strings are faster, and pathlib would normalise them
        try:
            if os.path.lexists(path):
                path = os.path.normpath(path)
                (self._tree if os.path.isdir(path) else self._file)(path)  # noqa: PTH112 - as above
            elif not is_wild(target):
                self._problem(path, "the path does not exist")
            else:
                for number, pattern in enumerate(alternatives(target)):
                    self._match(root, _parts(pattern), number)
            if not self._found:
                self._problem(
                    path, "no file matches the pattern" if is_wild(target) else "the directory contains no files"
                )
        except _Enough:
            self._problem(
                path, f"the path stands for more than {self._most:,} files, which is the limit; the rest is left out"
            )
        return self._found

    # --- globs

    def _match(self, directory: str, parts: Sequence[str], number: int) -> None:
        if not parts:
            return
        part, rest = parts[0], parts[1:]
        if not is_wild(part):
            below = os.path.normpath(os.path.join(directory, part))  # noqa: PTH118 - strings: a tree may have a million paths
            if rest:
                self._match(below, rest, number)
            elif os.path.isfile(below):  # noqa: PTH113 - strings: a tree may have a million paths
                self._file(below)
            return
        status = self._status(directory)
        if status is None or (_id(status), len(parts), number) in self._searched:
            return  # with `**` twice in a pattern, many paths lead to the same directory
        self._searched.add((_id(status), len(parts), number))
        if part == ANY_DEPTH and not rest:
            self._tree(directory)
        elif part == ANY_DEPTH:
            for below in self._directories(directory):
                self._match(below, rest, number)
        else:
            self._children(directory, part, rest, number)

    def _children(self, directory: str, part: str, rest: Sequence[str], number: int) -> None:
        wanted = matcher(part)
        for entry in self._listing(directory):
            if not wanted.match(entry.name):
                continue
            is_directory = _leads_to_directory(entry)
            if rest and is_directory and not _is_base(entry):
                self._match(entry.path, rest, number)
            elif not rest and not is_directory:
                self._file(entry.path)

    def _directories(self, top: str) -> Iterator[str]:
        seen: set[Id] = set()
        waiting = [top]
        while waiting:
            directory = waiting.pop()
            status = self._status(directory)
            if status is None or _id(status) in seen:
                continue
            seen.add(_id(status))
            yield directory
            shown = [entry for entry in self._listing(directory) if _is_visible(entry) and _leads_to_directory(entry)]
            waiting += reversed([entry.path for entry in shown if not _is_base(entry)])

    # --- directories

    def _tree(self, top: str) -> None:
        """Add all files of a directory. Iterative, because directories may be nested to any depth."""
        above: list[Id] = []
        levels: list[Iterator[os.DirEntry[str]]] = []
        self._enter(top, above, levels)
        while levels:
            entry = next(levels[-1], None)
            if entry is None:
                levels.pop()
                above.pop()
            elif not _is_visible(entry):
                continue
            elif _leads_to_directory(entry):
                if not _is_base(entry):
                    self._enter(entry.path, above, levels)
            else:
                self._file(entry.path)

    def _enter(self, directory: str, above: list[Id], levels: list[Iterator[os.DirEntry[str]]]) -> None:
        status = self._status(directory)
        if status is None:
            return
        if _id(status) in above:
            self._problem(directory, "the path is a symbolic link to a directory that contains it")
        elif _id(status) not in self._listed:
            self._listed.add(_id(status))
            above.append(_id(status))
            levels.append(iter(self._listing(directory)))

    def _listing(self, directory: str) -> list[os.DirEntry[str]]:
        trio.from_thread.check_cancelled()
        try:
            with os.scandir(directory) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ENOENT):
                self._problem(directory, f"the directory can't be listed: {error.strerror}")
            return []

    # --- files

    def _file(self, path: str) -> None:
        status = self._status(path)
        if status is None or _id(status) in self._files:
            return
        self._files.add(_id(status))
        if stat.S_ISREG(status.st_mode):
            if len(self._files) > self._most:
                raise _Enough
            self._found.append(WalkedFile(path, status.st_size, status.st_mtime))
        else:
            self._problem(path, f"the path is {_KINDS.get(stat.S_IFMT(status.st_mode), 'a device')}, not a file")

    def _status(self, path: str) -> os.stat_result | None:
        """Return the stat of a path's target, or None; an unusable target is reported."""
        try:
            status = os.stat(path)  # noqa: PTH116 - strings: a tree may have a million paths
        except OSError as error:
            if os.path.islink(path):  # noqa: PTH114 - strings: a tree may have a million paths
                circle = error.errno == errno.ELOOP
                self._problem(
                    path,
                    "the symbolic link leads back to itself"
                    if circle
                    else "the target of the symbolic link does not exist",
                )
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
                self._problem(path, error.strerror or str(error))
            return None
        if status.st_dev in self._kernel:
            self._problem(path, "the path belongs to the system (/proc, /sys, /dev), which has no documents")
            return None
        return status

    def _problem(self, path: str, problem: str) -> None:
        self._found.append(WalkedFile(path, problem=problem))


def _parts(pattern: str) -> list[str]:
    """Split a pattern into parts. Repeated `**` are merged; a final `*/NAME` matches at any depth below, as in Loki."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if parts[-2:-1] == ["*"] and not is_wild(parts[-1]):
        parts.insert(-1, ANY_DEPTH)
    kept = [part for at, part in enumerate(parts) if part != ANY_DEPTH or parts[at - 1 : at] != [ANY_DEPTH]]
    return ["/", *kept] if pattern.startswith("/") else kept


def _devices(paths: Sequence[str]) -> set[int]:
    return {os.stat(path).st_dev for path in paths if os.path.isdir(path)}  # noqa: PTH112, PTH116 - strings: a tree may have a million paths


def _id(status: os.stat_result) -> Id:
    return status.st_dev, status.st_ino


def _is_visible(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and entry.name not in LEFT_OUT


def _is_base(entry: os.DirEntry[str]) -> bool:
    if not entry.name.endswith(ENDING):
        return False
    layout = BaseLayout(Path(entry.path))
    return layout.current.exists() or layout.lock.exists()


def _leads_to_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a cyclic link
        return False


_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}


# --- globs: braces are expanded first, then each part of the path is matched separately
#
#     dir/*.md            in dir itself
#     dir/*/*.md          one directory below dir, no deeper
#     dir/*/README.md     files of that name at any depth below dir, but not in dir itself, as in Loki
#     dir/**/*.{md,txt}   in dir and at any depth below, with either ending
#     dir/**              everything below dir
#
# As in a shell, wildcards don't match names that begin with a dot.

ALTERNATIVES = 1000
ANY_DEPTH = "**"


def alternatives(pattern: str) -> list[str]:
    """Expand the braces of a pattern, in the order in which they are written. Braces may be nested.

    Raises:
        UsageError: the expansion has more than a thousand patterns, or a brace is not closed.
    """
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        opening = text.find("{")
        if opening < 0:
            done.append(text)
        else:
            closing, commas = _group(text, opening)
            ends = [opening, *commas, closing]
            inner = [text[start + 1 : end] for start, end in pairwise(ends)]
            waiting += [text[:opening] + each + text[closing + 1 :] for each in reversed(inner)]
        if len(done) + len(waiting) > ALTERNATIVES:
            raise UsageError(f"the braces in '{pattern}' stand for more than {ALTERNATIVES} patterns")
    return list(dict.fromkeys(done))


def matcher(part: str) -> re.Pattern[str]:
    """Return the regular expression for one part of a path."""
    simpler = re.sub(r"\*+", "*", part)
    dots = "" if part.startswith(".") else r"(?!\.)"
    return re.compile(dots + fnmatch.translate(simpler), re.DOTALL)


def _group(text: str, opening: int) -> tuple[int, list[int]]:
    """Return the position of the closing brace, and of its commas."""
    depth = 0
    commas: list[int] = []
    for at in range(opening, len(text)):
        match text[at]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if not depth:
                    return at, commas
            case "," if depth == 1:
                commas.append(at)
    raise UsageError(f"'{text}': a brace is not closed; write {{md,txt}}")


# --- files as sources, found on disk and read on demand

T = TypeVar("T")

PIECE = 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def normal(path: Path) -> Path:
    """Remove `..` from a path, so that no source has it in its name; symbolic links stay unresolved."""
    return Path(os.path.normpath(path))


async def listed(context: SourceContext, target: str) -> list[WalkedFile]:
    """Return the files that a path names: one file, all files of a directory, or all matches of a glob.

    `a;b`, Loki's syntax for several paths, means both, unless there is a file of that name.

    Raises:
        UsageError: the glob is invalid.
    """

    def walk_all() -> list[WalkedFile]:
        walk = Walk(context.settings.files)
        entries: list[WalkedFile] = []
        several = ";" in target and not Path(*rooted(context, target)).exists()
        for path in [part.strip() for part in target.split(";") if part.strip()] if several else [target]:
            entries = walk.named(*rooted(context, path))  # all results of the walk, including earlier paths
        return entries

    return await trio.to_thread.run_sync(walk_all, limiter=context.limiter, abandon_on_cancel=True)


def rooted(context: SourceContext, target: str) -> tuple[str, str]:
    """Return the directory that a path is relative to, and the path. A home directory is never read as a glob."""
    if target == "~" or target.startswith("~/"):
        return context.environ.get("HOME", "/"), target[2:]
    return str(context.base), target


def source_name(context: SourceContext, path: str, target: str) -> str:
    """Return the name of a file: relative to the base if it is below it or was named relative to it."""
    is_foreign = target.startswith(("/", "~")) and not Path(path).is_relative_to(context.base)
    name = path if is_foreign else os.path.relpath(path, context.base)
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@final
class DiskFile(FoundSource):
    """File on disk as a source of a knowledge base; it is read on demand."""

    def __init__(self, context: SourceContext, source: str, entry: WalkedFile) -> None:
        super().__init__(source, size=entry.size, mtime=entry.mtime)
        self.path = entry.path
        self._context = context

    async def digest(self) -> str | Unreadable:
        """Return its checksum. The file is read in pieces, and not kept in memory."""
        try:
            return await self._in_thread(self._hashed)
        except (OSError, CantRead) as error:
            return Unreadable(source=self.source, reason=explained(error))

    async def _documents(self) -> Sequence[Document]:
        data = await self._in_thread(lambda: b"".join(self._pieces()))
        return (await self._context.read(RawDocument(source=self.source, data=data, path=self.path))).documents

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._context.limiter, abandon_on_cancel=True)

    def _hashed(self) -> str:
        digest = hashlib.sha256()
        for piece in self._pieces():
            digest.update(piece)
        return digest.hexdigest()

    def _pieces(self) -> Iterator[bytes]:
        """Yield its bytes. Type and size are checked again, because the file may have changed since it was found."""
        bounds = self._context.settings.bounds
        # O_NONBLOCK: a path that has become a named pipe must not block here.
        descriptor = os.open(self.path, _FLAGS)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise CantRead("the path is no longer a file")
            remaining = max(bounds.packed, bounds.text)
            while piece := file.read(PIECE):
                trio.from_thread.check_cancelled()
                remaining -= len(piece)
                if remaining < 0:
                    raise CantRead("the file grows while it is read")
                yield piece
