"""File fingerprints for caches: records the files that a computation reads, so that its result is valid until one
changes.

    with recorded() as looked:
        thing = read(file)          # passes each path to `record_read` before using it
    ...
    if unchanged(looked): reuse thing

A file's fingerprint is its modification time, size and inode; a directory's changes with the names in it. A missing
path has a fingerprint too: the result may depend on its absence.
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
    """Collect the fingerprints of all paths that the block passes to `record_read`, also in code that it calls."""
    found: dict[Path, Stamp] = {}
    token = _looked.set(found)
    try:
        yield found
    finally:
        _looked.reset(token)


def record_read(path: Path) -> Path:
    """Record the fingerprint of a path and return the path. Call it before reading, so that no change is missed."""
    found = _looked.get()
    if found is not None and path not in found:
        found[path] = stamp(path)
    return path


def stamp(path: Path) -> Stamp:
    """Return the fingerprint of a path: modification time, size and inode, or that the path is missing."""
    try:
        state = path.stat()
    except (OSError, ValueError):  # missing, or an impossible file name
        return MISSING
    return state.st_mtime_ns, state.st_size, state.st_ino


def settled(looked: Mapping[Path, Stamp]) -> bool:
    """Return True if the fingerprints are old enough to reveal a change made now: file timestamps are coarse."""
    newest = max((mtime for mtime, _, _ in looked.values()), default=0)
    return time.time_ns() - newest > SETTLED


def unchanged(looked: Mapping[Path, Stamp]) -> bool:
    """Return True if no fingerprint has changed."""
    return all(stamp(path) == known for path, known in looked.items())
