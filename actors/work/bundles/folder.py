"""Directory as a source of a bundle. Symbolic links are listed, but not followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import trio

from ....protocol.errors import InvalidFile
from .tree import MOST_ENTRIES, SourceFile, SourceTree

_PASSED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"})
"""Directories without files of a bundle, which may be large."""


async def list_folder(directory: Path) -> SourceTree:
    """List the files below a directory.

    Raises:
        InvalidFile: the directory can't be read, or contains too many files.
    """

    async def read(entries: Sequence[SourceFile]) -> dict[str, bytes]:
        return await trio.to_thread.run_sync(lambda: {entry.path: _contents(directory, entry) for entry in entries})

    try:
        entries = await trio.to_thread.run_sync(lambda: tuple(_entries(directory)))
    except OSError as error:
        raise InvalidFile(f"{directory} can't be read: {error.strerror or error}") from error
    return SourceTree(entries=entries, read=read)


def _entries(top: Path) -> Iterator[SourceFile]:
    waiting, count = [""], 0
    while waiting:
        below = waiting.pop()
        with os.scandir(top / below) as found:
            for each in found:
                # Directories count as well: a tree of directories without files must end, too.
                count += 1
                if count > MOST_ENTRIES:
                    raise InvalidFile(f"{top} holds more than {MOST_ENTRIES} files, which no bundle does")
                path = f"{below}{each.name}"
                if not each.is_dir(follow_symlinks=False):
                    yield _entry(path, each.stat(follow_symlinks=False))
                elif each.name not in _PASSED:
                    waiting.append(f"{path}/")


def _entry(path: str, about: os.stat_result) -> SourceFile:
    if stat.S_ISLNK(about.st_mode):
        return SourceFile(path=path, kind="link")
    if not stat.S_ISREG(about.st_mode):
        return SourceFile(path=path, kind="special")
    return SourceFile(path=path, size=about.st_size, executable=bool(about.st_mode & stat.S_IXUSR))


def _contents(top: Path, entry: SourceFile) -> bytes:
    """Return the contents of a file, which may have been replaced since it was listed."""
    try:
        # O_NOFOLLOW and O_NONBLOCK: the file may have become a link, or a named pipe that would block.
        handle = os.open(top / entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InvalidFile(f"{top / entry.path} is no file any more")
            # One byte more than listed, to notice that the file has grown.
            data = file.read(entry.size + 1)
    except OSError as error:
        raise InvalidFile(f"{top / entry.path} can't be read: {error.strerror or error}") from error
    if len(data) > entry.size:
        raise InvalidFile(f"{top / entry.path} has grown while it was read")
    return data
