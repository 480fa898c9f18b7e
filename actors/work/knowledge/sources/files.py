"""Files as sources: how they are called, and how they are read."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar, final

import trio

from .....protocol.knowledge import Document, Unreadable
from ..reading.bounds import CantRead
from ..reading.read import Raw, read
from .found import Desk, Found
from .walk import Entry, Walk

T = TypeVar("T")

PIECE = 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


async def listed(desk: Desk, target: str) -> list[Entry]:
    """What a path names: one file, all files of a directory, or all that a glob matches.

    `a;b`, the way Loki asks for several, is both, unless there is a file of that name.

    Raises:
        UsageError: the glob can't be understood.
    """

    def look() -> list[Entry]:
        walk = Walk(desk.settings.files)
        entries: list[Entry] = []
        for path in _several(desk, target):
            entries = walk.named(*rooted(desk, path))  # all that the walk has found, of earlier paths too
        return entries

    return await trio.to_thread.run_sync(look, limiter=desk.limiter, abandon_on_cancel=True)


def _several(desk: Desk, target: str) -> list[str]:
    if ";" not in target or Path(*rooted(desk, target)).exists():
        return [target]
    return [path.strip() for path in target.split(";") if path.strip()]


def rooted(desk: Desk, target: str) -> tuple[str, str]:
    """What a path is relative to, and the path. A home directory's name is no glob, whatever is in it."""
    if target == "~" or target.startswith("~/"):
        return desk.environ.get("HOME", "/"), target[2:]
    return str(desk.base), target


def shown(desk: Desk, path: str, target: str) -> str:
    """How a file is called: relative to the base if it is below it or was named so."""
    named_from_elsewhere = target.startswith(("/", "~")) and not Path(path).is_relative_to(desk.base)
    name = path if named_from_elsewhere else os.path.relpath(path, desk.base)
    return os.fsencode(name).decode("utf-8", "backslashreplace")


@final
class File(Found):
    """A file on disk."""

    def __init__(self, desk: Desk, source: str, entry: Entry) -> None:
        super().__init__(source, size=entry.size, mtime=entry.mtime)
        self.path = entry.path
        self._desk = desk

    async def digest(self) -> str | Unreadable:
        """Read piece by piece; nothing of it is kept."""
        try:
            return await self._in_thread(self._hashed)
        except (OSError, CantRead) as error:
            return self.unreadable(explained(error))

    async def documents(self) -> Sequence[Document | Unreadable]:
        """What it says now, which may not be what it said when it was found."""
        desk = self._desk
        try:
            data = await self._in_thread(lambda: b"".join(self._pieces()))
            raw = Raw(source=self.source, data=data, path=self.path)
            return (await read(desk.me, raw, desk.settings.bounds, desk.limiter)).documents
        except (OSError, CantRead) as error:
            return (self.unreadable(explained(error)),)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._desk.limiter, abandon_on_cancel=True)

    def _hashed(self) -> str:
        digest = hashlib.sha256()
        for piece in self._pieces():
            digest.update(piece)
        return digest.hexdigest()

    def _pieces(self) -> Iterator[bytes]:
        """Its bytes. What it is was looked at before, but may have been changed since: it is looked at again."""
        bounds = self._desk.settings.bounds
        descriptor = os.open(self.path, _FLAGS)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise CantRead("it is not a file any more")
            left = max(bounds.packed, bounds.text)
            while piece := file.read(PIECE):
                trio.from_thread.check_cancelled()
                left -= len(piece)
                if left < 0:
                    raise CantRead("it grows while it is read")
                yield piece


def explained(error: OSError | CantRead) -> str:
    """Why a file can't be read."""
    return str(error) if isinstance(error, CantRead) else f"it can't be read: {error.strerror or error}"
