"""Built-in tools that write: fs_write, fs_mkdir, fs_rm, fs_patch and fs_edit, and the diff that previews a call.

`replace` is the one function through which they change a file; `text_edits` computes the new content of a patched file.

A file is replaced as a whole: the new one is written to the same directory and renamed over the old one. No reader sees
a partial file, and a cancelled call changes nothing or everything. The mode is preserved. While a file is read, changed
and replaced, its directory is locked (`flock`). Two calls of one turn, or of two agents, therefore run one after the
other.

The call's keeper records each change before it is made (`changes/snapshot`), so that it can be displayed and undone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from .....protocol.errors import ToolFailed
from ....io.encodings import lossless
from ....io.secret_redaction import PUT, hidden, hidden_bytes
from ..changes.diff import unified
from ..changes.snapshot import ChangeKeeper, keeper_of
from ..changes.store import present, printable_path
from ..tool import Arguments
from .allowed_paths import AllowedPath, AllowedPaths, Setting, explained, in_thread
from .text_edits import DiffError, Edit, Hunk, apply, apply_edits, parse, parse_edits

if TYPE_CHECKING:
    from .....supervisors import Actor

T = TypeVar("T")

LARGEST = 8 * 1024 * 1024
"""Maximum bytes of one write."""

LOCKED_FOR = 5.0
"""Seconds to wait for another program's lock; Callboard's own locks last milliseconds."""

_MOST_LINES = 12
"""Maximum number of line numbers in the report of fs_edit."""

_PUT = PUT.encode()
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


async def fs_write(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Create or replace a whole file, create missing directories above it, and return a report."""
    data = encoded(arguments["contents"])
    keeper = keeper_of(me, setting, "fs_write")
    return await _changing(me, keeper, lambda: _write(setting.paths.find(arguments["path"]), data, keeper))


async def fs_mkdir(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Create a directory and the missing ones above it. An existing directory is no error."""
    path = arguments["path"]
    keeper = keeper_of(me, setting, "fs_mkdir")
    made = await _changing(me, keeper, lambda: _make(setting.paths.find(path), keeper))
    return f"made {path}" if made else f"{path} exists already"


async def fs_rm(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Remove a file, a link (never its target), or a directory with everything in it.

    Raises:
        ToolFailed: the path is empty or missing, contains an allowed directory, or `permissions` denies a path in it.
    """
    text = arguments["path"]
    if not text.strip():
        raise ToolFailed("the path is empty; nothing was removed")
    keeper = keeper_of(me, setting, "fs_rm")
    return await _changing(me, keeper, lambda: _remove(setting.paths, setting.paths.find(text, follow=False), keeper))


async def _changing(me: Actor, keeper: ChangeKeeper, work: Callable[[], T]) -> T:
    """Change files in a thread, and emit events for the changes, also after a failure."""
    try:
        return await in_thread(work, changes=True)
    finally:
        keeper.emit_events(me)


def encoded(text: str) -> bytes:
    """Return the text in UTF-8.

    Raises:
        ToolFailed: it is too long, or contains half of a surrogate pair.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed(f"the contents can't be written as UTF-8: {error}") from error
    if len(data) > LARGEST:
        raise ToolFailed(f"the contents have {len(data)} bytes; at most {LARGEST} can be written at once")
    return data


@contextlib.contextmanager
def locked(directory: int) -> Iterator[None]:
    """Lock the directory against other calls during the block. Closing the descriptor releases the lock.

    Raises:
        ToolFailed: another process holds the lock for longer than `LOCKED_FOR`.
    """
    until = time.monotonic() + LOCKED_FOR
    while True:
        trio.from_thread.check_cancelled()
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        # Polling instead of a blocking `flock`: a blocked system call could not be cancelled.
        except BlockingIOError:
            if time.monotonic() > until:
                raise ToolFailed(
                    "another process has locked the directory, so nothing was written; try again"
                ) from None
            time.sleep(0.005)
    yield


def status_of(place: AllowedPath, directory: int) -> os.stat_result | None:
    """Return the status of the existing file, or None.

    Raises:
        ToolFailed: the path is not a regular file, or is read-only.
    """
    try:
        status = os.stat(place.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise ToolFailed(f"'{place.shown}' is a directory, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise ToolFailed(f"'{place.shown}' is not a regular file, so it was not changed")
    # A rename replaces a read-only file without an error. `access` alone is not enough: root passes it always.
    if not status.st_mode & 0o222 or not os.access(place.name, os.W_OK, dir_fd=directory):
        raise ToolFailed(
            f"'{place.shown}' is read-only (mode {stat.S_IMODE(status.st_mode):04o}), so it was not changed"
        )
    return status


def replace(
    place: AllowedPath, directory: int, old: os.stat_result | None, data: bytes, *, mode: int | None = None
) -> None:
    """Write a new file and rename it over `old`. The mode is that of `old` unless `mode` is given."""
    temporary = f".{secrets.token_hex(6)}.callboard"
    # In the same directory, since a rename is atomic only within a file system. The umask decides the mode of a new
    # file.
    descriptor = os.open(temporary, _NEW, 0o666, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if old is not None:
                if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                    with contextlib.suppress(OSError):  # Only root may change a file's owner.
                        os.fchown(descriptor, old.st_uid, old.st_gid)
                mode = stat.S_IMODE(old.st_mode) if mode is None else mode
            if mode is not None:
                os.fchmod(descriptor, mode)
        os.rename(temporary, place.name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:  # Also on cancellation: no temporary file may remain.
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _make(place: AllowedPath, keeper: ChangeKeeper) -> bool:
    made = place.make_directory()
    keeper.makes(place, made)
    return len(place.parts) in made


def _write(place: AllowedPath, data: bytes, keeper: ChangeKeeper) -> str:
    made: list[int] = []
    with place.above(make=True, made=made) as directory, explained(place), locked(directory):
        old = status_of(place, directory)
        if old is not None and _PUT in data:
            _keep_secrets(place, _read(place, directory, old), data)
        with keeper.writes(place, directory, data, made):
            replace(place, directory, old, data)
    lines = data.count(b"\n") + (0 if data.endswith(b"\n") or not data else 1)
    done = "wrote" if old is None else "replaced"
    size = "1 byte" if len(data) == 1 else f"{len(data)} bytes"
    return f"{done} {place.shown}: {lines} {'line' if lines == 1 else 'lines'}, {size}"


def _remove(paths: AllowedPaths, place: AllowedPath, keeper: ChangeKeeper) -> str:
    # The allowed roots themselves must survive, and so every directory that contains one.
    if any(root.is_relative_to(place.path) for root in paths.roots):
        raise ToolFailed(f"'{place.shown}' was not removed: it is, or contains, one of the allowed directories")
    with place.above() as directory, explained(place), locked(directory):
        mode = os.stat(place.name, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            # `rmtree` would delete files that a rule denies, so one such file refuses the whole removal.
            if place.access.bars and _holds_barred(place, directory):
                raise ToolFailed(f"'{place.shown}' was not removed: `permissions` denies access to something in it")
            with keeper.removes(place, directory):
                shutil.rmtree(place.name, dir_fd=directory)
            return f"removed {place.shown} and everything in it"
        with keeper.removes(place, directory):
            os.unlink(place.name, dir_fd=directory)
        return f"removed {place.shown}"


def _holds_barred(place: AllowedPath, above: int) -> bool:
    for path, directories, files, _ in os.fwalk(place.name, dir_fd=above):
        trio.from_thread.check_cancelled()
        here = place.path.parent / path
        if any(place.access.hides(str(here / name)) for name in (*directories, *files)):
            return True
    return False


async def fs_patch(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Apply all hunks of a diff to a file, or none. A missing file is created if the diff only adds lines."""
    encoded(arguments["contents"])
    return await _rewrite(me, setting, "fs_patch", arguments)


async def fs_edit(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Replace exact texts in a file. If one edit does not apply, nothing is changed."""
    return await _rewrite(me, setting, "fs_edit", arguments)


async def _rewrite(me: Actor, setting: Setting, tool: str, arguments: Arguments) -> str:
    keeper = keeper_of(me, setting, tool)
    return await _changing(
        me, keeper, lambda: _rewritten(setting.paths.find(arguments["path"]), Rewrite.of(tool, arguments), keeper)
    )


class Rewrite(msgspec.Struct, frozen=True):
    """Call of fs_patch or fs_edit with parsed arguments.

    Attributes:
        apply: maps the file's content to the new content and a report. Raises `DiffError`.
        verb: the action, for the report.
        creates: the file may be missing.
    """

    apply: Callable[[bytes], tuple[bytes, str]]
    verb: str
    creates: bool = False

    @classmethod
    def of(cls, tool: str, arguments: Arguments) -> Rewrite:
        """Parse the arguments of a call.

        Raises:
            ToolFailed: they contain no valid diff or edits.
        """
        try:
            if tool == "fs_patch":
                hunks = parse(arguments["contents"])
                return cls(partial(patched, hunks), "patched", creates=not any(hunk.old for hunk in hunks))
            return cls(partial(_edit, parse_edits(arguments["edits"])), "edited")
        except DiffError as error:
            raise ToolFailed(f"'{arguments['path']}' was not changed: {error}") from error

    def applied(self, place: AllowedPath, before: bytes) -> tuple[bytes, str]:
        """Return the new content and a report.

        Raises:
            ToolFailed: the change does not apply, would overwrite a secret, or makes the file too large.
        """
        try:
            after, words = self.apply(before)
        except DiffError as error:
            raise ToolFailed(f"'{place.shown}' was not changed: {error}") from error
        _keep_secrets(place, before, after)
        if len(after) > LARGEST:
            raise ToolFailed(
                f"'{place.shown}' was not changed: it would have {len(after)} bytes, and at most {LARGEST} are allowed"
            )
        return after, f"{self.verb} {place.shown}: {words}"

    def content(self, place: AllowedPath, directory: int) -> tuple[os.stat_result | None, bytes]:
        """Return the status and content of the file to rewrite; None and b"" for a missing one that may be created.

        Raises:
            ToolFailed: it cannot be rewritten.
            OSError: it is missing, or cannot be read.
        """
        old = status_of(place, directory)
        if old is None and not self.creates:
            raise FileNotFoundError(2, "No such file or directory")
        return old, b"" if old is None else _read(place, directory, old)


def _rewritten(place: AllowedPath, rewrite: Rewrite, keeper: ChangeKeeper) -> str:
    made: list[int] = []
    with place.above(make=rewrite.creates, made=made) as directory, explained(place), locked(directory):
        old, before = rewrite.content(place, directory)
        after, words = rewrite.applied(place, before)
        with keeper.writes(place, directory, after, made):
            replace(place, directory, old, after)
    return words


def rewritten(place: AllowedPath, tool: str, arguments: Arguments) -> tuple[bytes | None, bytes]:
    """Return the content before and after a call of fs_patch or fs_edit, without changing the file.

    The content before is None for a file that the call would create.

    Raises:
        ToolFailed: the call would fail in the same way.
    """
    rewrite = Rewrite.of(tool, arguments)
    # A preview must not create the missing directories.
    if rewrite.creates and not place.path.parent.exists():
        return None, rewrite.applied(place, b"")[0]
    with place.above() as directory, explained(place):
        old, before = rewrite.content(place, directory)
    after, _ = rewrite.applied(place, before)
    return None if old is None else before, after


def patched(hunks: list[Hunk], before: bytes) -> tuple[bytes, str]:
    mark, encoding, errors = lossless(before)
    applied = apply(before[len(mark) :].decode(encoding, errors), hunks)
    try:
        after = mark + applied.text.encode(encoding, errors)
    except UnicodeEncodeError as error:
        raise DiffError(f"the file is in the encoding {encoding}, which lacks a character of the diff") from error
    moved = "".join(f"; hunk {number} was applied at line {line}" for number, line in applied.moved)
    many = "1 hunk" if len(hunks) == 1 else f"{len(hunks)} hunks"
    return after, f"{many}, +{applied.added} -{applied.removed} lines{moved}"


def _edit(edits: list[Edit], before: bytes) -> tuple[bytes, str]:
    edited = apply_edits(before, edits)
    numbers = [line for lines in edited.lines for line in lines]
    shown = ", ".join(map(str, numbers[:_MOST_LINES])) + (", ..." if len(numbers) > _MOST_LINES else "")
    where = f"line {shown}" if len(numbers) == 1 else f"{len(numbers)} places, lines {shown}"
    return edited.data, f"{'1 edit' if len(edits) == 1 else f'{len(edits)} edits'} ({where})"


def _keep_secrets(place: AllowedPath, before: bytes, after: bytes) -> None:
    """Refuse to write the placeholder over a secret: models read `[redacted]` and may write it back."""
    if after.count(_PUT) > before.count(_PUT) and hidden_bytes(before) != before:
        raise ToolFailed(
            f"'{place.shown}' was not written: it contains a secret, which you read as {PUT}, and the new "
            f"text would replace the secret by {PUT}. Change other lines with fs_edit or fs_patch"
        )


def _read(place: AllowedPath, directory: int, status: os.stat_result) -> bytes:
    if status.st_size > LARGEST:
        raise ToolFailed(f"'{place.shown}' has {status.st_size} bytes; files of up to {LARGEST} bytes can be changed")
    descriptor = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(LARGEST + 1)


MOST_CHARACTERS = 16_000
MOST_LINES = 400
"""Limits of a diff in an approval question."""

WITHIN = 2.0
"""Seconds to read the file; the question does not wait longer for a diff."""


REWRITES = ("fs_patch", "fs_edit")
"""Tools whose calls depend on the file's content."""


# --- diffs that preview a call in its approval question
#
# A diff contains parts of the file. Files that permissions deny to read (`FileAccess.unshown`) therefore get none, and
# secrets of the vault are redacted. No diff is available either if the disk does not respond or a directory is removed;
# the user then sees only the arguments. A patch or an edit that cannot apply raises: the model receives the reason, and
# the user is not asked about a call that fails anyway.


async def preview_of(tool: str, paths: AllowedPaths, arguments: Arguments) -> str:
    """Return the diff of the change that a call of `tool` would make; "" if there is none.

    "" also if the permissions hide the file, if the file cannot be read, and if the disk takes longer than `WITHIN`.

    Raises:
        ToolFailed: a patch or an edit cannot apply.
    """
    with trio.move_on_after(WITHIN):
        return await in_thread(lambda: _preview(tool, paths, arguments))
    return ""


def _preview(tool: str, paths: AllowedPaths, arguments: Arguments) -> str:
    if tool in REWRITES:
        place = paths.find(arguments["path"])
        before, after = rewritten(place, tool, arguments)
        return "" if place.access.unshown(str(place.path)) else _diff(place, before, after)
    try:
        place = paths.find(arguments["path"], follow=tool != "fs_rm")
        if not place.parts or place.access.unshown(str(place.path)):
            return ""
        state, before = present(place)
        if state is not None and before is None:
            return ""
        return _diff(place, before, encoded(arguments["contents"]) if tool == "fs_write" else None)
    except (ToolFailed, OSError):
        return ""  # The call itself reports the error.


def _diff(place: AllowedPath, before: bytes | None, after: bytes | None) -> str:
    name = printable_path("/".join(place.parts))
    diff = unified(before, after, name, characters=MOST_CHARACTERS, lines=MOST_LINES, clean=hidden)
    return hidden(diff.text).removesuffix("\n")
