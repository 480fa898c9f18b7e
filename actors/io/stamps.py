"""Records which files a read looks at, so that its result can be cached until one of them changes.

    with recorded() as looked:
        thing = read(file)          # whatever it consults, it passes to `look` first
    ...
    if unchanged(looked): use thing again

A file's stamp is its time of modification, its size and its inode; a directory's changes with the names in it. A
missing path has a stamp, too: the result may depend on its absence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

Stamp = tuple[int, int, int]
MISSING: Stamp = (0, 0, 0)

SETTLED = 50_000_000
"""Nanoseconds after which a file system gives the next change another time."""

_looked: ContextVar[dict[Path, Stamp] | None] = ContextVar("callboard_looked_at", default=None)


@contextmanager
def recorded() -> Iterator[dict[Path, Stamp]]:
    """Collects the stamps of all paths that the block looks at."""
    found: dict[Path, Stamp] = {}
    token = _looked.set(found)
    try:
        yield found
    finally:
        _looked.reset(token)


def look(path: Path) -> Path:
    """The path, which is about to be consulted: its stamp is taken before, so that no change is missed."""
    found = _looked.get()
    if found is not None and path not in found:
        found[path] = stamp(path)
    return path


def stamp(path: Path) -> Stamp:
    """See the module."""
    try:
        state = path.stat()
    except (OSError, ValueError):  # not there, or no file can have such a name
        return MISSING
    return state.st_mtime_ns, state.st_size, state.st_ino


def settled(looked: Mapping[Path, Stamp]) -> bool:
    """Whether these stamps are old enough to tell a change that comes now; a clock of files is coarse."""
    newest = max((mtime for mtime, _, _ in looked.values()), default=0)
    return time.time_ns() - newest > SETTLED


def unchanged(looked: Mapping[Path, Stamp]) -> bool:
    """Whether all of them are as they were."""
    return all(stamp(path) == known for path, known in looked.items())
