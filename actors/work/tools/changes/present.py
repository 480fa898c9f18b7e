"""Looks at what stands at a path: its state, and a file's content. Nothing is followed; everything here blocks."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..builtin.allowed_paths import AllowedPath, walked
from .record import Change, State, decoded, encoded
from .store import sha_of

LONGEST = 32 * 1024 * 1024
"""Bytes of a file that are looked at; of a longer one it is not known whether it is still the same."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def seen(directory: int, name: str, *, most: int = LONGEST) -> tuple[State | None, bytes | None]:
    """What stands in an open directory by this name, with the content of a file that has no more than `most` bytes.

    Raises:
        OSError: it can't be looked at.
    """
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None, None
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        return State(kind="directory", mode=mode), None
    if stat.S_ISLNK(status.st_mode):
        return State(kind="link", target=encoded(os.readlink(name, dir_fd=directory))), None
    if not stat.S_ISREG(status.st_mode):
        return State(kind="other", mode=mode), None
    if status.st_size > most:
        return State(size=status.st_size, mode=mode), None
    with os.fdopen(os.open(name, _READ, dir_fd=directory), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:  # it has grown meanwhile
        return State(size=len(data), mode=mode), None
    return State(sha=sha_of(data), size=len(data), mode=mode), data


def place_of(change: Change) -> AllowedPath:
    """Where the change was made.

    Raises:
        OSError: its root is a link now, or below one.
    """
    root = Path(decoded(change.root))
    if os.path.realpath(root) != str(root):
        raise OSError("a directory above it is a symbolic link now")
    return AllowedPath(root=root, parts=change.parts, shown=str(change.whole))


def present(place: AllowedPath) -> tuple[State | None, bytes | None]:
    """What stands there now, by way of its root; what can't be reached without following a link does not.

    Raises:
        OSError: it can't be looked at.
    """
    try:
        with walked(place.root, place.parts[:-1]) as above:
            return seen(above, place.name)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
