"""fs_write, fs_mkdir and fs_rm, and `replace`, the one way in which a file is changed.

A file is replaced as a whole: the new one is written beside it and renamed over it, so that no reader sees half of
it, and a call that is cancelled changes nothing or everything. Its mode stays. While a file is read, changed and
replaced, its directory is locked (`flock`), so that two calls of one turn, or of two agents, come one after the other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import ToolFailed
from ..tool import Arguments
from .places import Place, Places, explained, in_thread
from .setting import Setting

if TYPE_CHECKING:
    from .....supervisors import Actor

LARGEST = 8 * 1024 * 1024
"""Bytes that may be written at once."""

LOCKED_FOR = 5.0
"""Seconds to wait for another program's lock; ours last milliseconds."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


async def fs_write(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Write all of a file."""
    data = encoded(arguments["contents"])
    return await in_thread(lambda: _write(setting.places.find(arguments["path"]), data), changes=True)


async def fs_mkdir(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Make a directory."""
    path = arguments["path"]
    made = await in_thread(lambda: setting.places.find(path).make_directory(), changes=True)
    return f"made {path}" if made else f"{path} exists already"


async def fs_rm(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Remove a file, a link (never what it points to) or a directory."""
    text = arguments["path"]
    if not text.strip():
        raise ToolFailed("the path is empty; nothing was removed")
    return await in_thread(lambda: _remove(setting.places, setting.places.find(text, follow=False)), changes=True)


def encoded(text: str) -> bytes:
    """What is to be written, in UTF-8.

    Raises:
        ToolFailed: it is too long, or is no text.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed(f"the contents can't be written as UTF-8: {error}") from error
    if len(data) > LARGEST:
        raise ToolFailed(f"the contents are {len(data)} bytes; at most {LARGEST} can be written at once")
    return data


@contextlib.contextmanager
def locked(directory: int) -> Iterator[None]:
    """Keep other calls from changing files of this directory meanwhile. The lock goes with the descriptor."""
    until = time.monotonic() + LOCKED_FOR
    while True:
        trio.from_thread.check_cancelled()
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                raise ToolFailed("somebody else holds a lock on the directory; nothing was written") from None
            time.sleep(0.005)
    yield


def status_of(place: Place, directory: int) -> os.stat_result | None:
    """The file that stands there, or None.

    Raises:
        ToolFailed: something stands there that can't be replaced.
    """
    try:
        status = os.stat(place.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailed(f"'{place.shown}' is a directory, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"'{place.shown}' is not a regular file and is left alone")
    if not status.st_mode & 0o222 or not os.access(place.name, os.W_OK, dir_fd=directory):
        raise ToolFailed(f"'{place.shown}' is read-only (mode {stat.S_IMODE(status.st_mode):04o}) and is left alone")
    return status


def replace(place: Place, directory: int, old: os.stat_result | None, data: bytes) -> None:
    """Put a new file in the place of `old`."""
    temporary = f".{secrets.token_hex(6)}.callboard"
    descriptor = os.open(temporary, _NEW, 0o666, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if old is not None:
                if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                    with contextlib.suppress(OSError):  # only root may give files away
                        os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
        os.rename(temporary, place.name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:  # cancelled too: no temporary file stays
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _write(place: Place, data: bytes) -> str:
    with place.above(make=True) as directory, explained(place), locked(directory):
        old = status_of(place, directory)
        replace(place, directory, old, data)
    lines = data.count(b"\n") + (0 if data.endswith(b"\n") or not data else 1)
    done = "wrote" if old is None else "replaced"
    size = "1 byte" if len(data) == 1 else f"{len(data)} bytes"
    return f"{done} {place.shown}: {lines} {'line' if lines == 1 else 'lines'}, {size}"


def _remove(places: Places, place: Place) -> str:
    if places.holds_a_root(place):
        raise ToolFailed(f"'{place.shown}' is, or holds, a directory that may be used as a whole; it is not removed")
    with place.above() as directory, explained(place):
        mode = os.stat(place.name, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if place.sight.bars and _holds_barred(place, directory):
                raise ToolFailed(f"'{place.shown}' was not removed: the permissions deny something in it")
            shutil.rmtree(place.name, dir_fd=directory)
            return f"removed {place.shown} with all that was in it"
        os.unlink(place.name, dir_fd=directory)
        return f"removed {place.shown}"


def _holds_barred(place: Place, above: int) -> bool:
    """Whether something in this directory must not be removed."""
    for path, directories, files, _ in os.fwalk(place.name, dir_fd=above):
        trio.from_thread.check_cancelled()
        here = place.path.parent / path
        if any(place.sight.hides(str(here / name)) for name in (*directories, *files)):
            return True
    return False
