"""Reading of a path's current state and content. Links are not followed. All functions block."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..builtin.allowed_paths import AllowedPath, walked
from .record import PathChange, PathState, decoded, encoded
from .store import sha_of

LONGEST = 32 * 1024 * 1024
"""Maximum bytes of a file whose content is read; a larger one cannot be compared."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def seen(directory: int, name: str, *, most: int = LONGEST) -> tuple[PathState | None, bytes | None]:
    """Return the state of a name in an open directory, with the content of a file of at most `most` bytes.

    Raises:
        OSError: the path cannot be read.
    """
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None, None
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        return PathState(kind="directory", mode=mode), None
    if stat.S_ISLNK(status.st_mode):
        return PathState(kind="link", target=encoded(os.readlink(name, dir_fd=directory))), None
    if not stat.S_ISREG(status.st_mode):
        return PathState(kind="other", mode=mode), None
    if status.st_size > most:
        return PathState(size=status.st_size, mode=mode), None
    with os.fdopen(os.open(name, _READ, dir_fd=directory), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:  # The file has grown since `stat`.
        return PathState(size=len(data), mode=mode), None
    return PathState(sha=sha_of(data), size=len(data), mode=mode), data


def place_of(change: PathChange) -> AllowedPath:
    """Return the place of a change.

    Raises:
        OSError: a link now replaces its root or a directory above it.
    """
    root = Path(decoded(change.root))
    if os.path.realpath(root) != str(root):
        raise OSError("a directory above it is a symbolic link now")
    return AllowedPath(root=root, parts=change.parts, shown=str(change.whole))


def present(place: AllowedPath) -> tuple[PathState | None, bytes | None]:
    """Return the current state and content of a place. A path that is reachable only through a link counts as absent.

    Raises:
        OSError: the path cannot be read.
    """
    try:
        with walked(place.root, place.parts[:-1]) as above:
            return seen(above, place.name)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
