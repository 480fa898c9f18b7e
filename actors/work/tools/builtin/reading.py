"""fs_cat, fs_read and fs_ls: bounded reads of files and directories.

A result contains at most `RESULT` bytes. A last line in brackets reports omitted text, with the offset to continue
from. Text is UTF-8; invalid bytes become U+FFFD. A file with a NUL among its first bytes is binary; its content is not
returned.
"""

from __future__ import annotations

import io
import os
import stat
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import ToolFailed
from ..tool import Arguments
from .allowed_paths import AllowedPath, Setting, explained, in_thread, regular

if TYPE_CHECKING:
    from .....supervisors import Actor

RESULT = 128 * 1024
"""Maximum bytes of a file in one result."""

LINES = 2000
"""Default number of lines for fs_read."""

WIDTH = 2000
"""Maximum bytes of a line in fs_read."""

ENTRIES = 2000
"""Maximum names in fs_ls."""

SNIFFED = 8192
CHECKED_EVERY = 1024


async def fs_cat(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return the file's text unchanged, or a range of its lines."""
    find, (offset, limit) = setting.paths.find, _asked(arguments)
    part = await in_thread(lambda: read_part(find(arguments["path"]), offset, limit, RESULT))
    text = "".join(part.lines)
    if not part.note:
        return text or "(the file is empty)"
    return f"{text}\n{part.note}" if text and not text.endswith("\n") else text + part.note


async def fs_read(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return lines with their numbers."""
    find, (offset, limit) = setting.paths.find, _asked(arguments)
    part = await in_thread(lambda: read_part(find(arguments["path"]), offset, limit or LINES, WIDTH))
    if not part.lines:
        return part.note or "(the file is empty)"
    shown = [f"{number:>6}\t{line.rstrip(chr(10)).rstrip(chr(13))}" for number, line in enumerate(part.lines, offset)]
    return "\n".join([*shown, part.note] if part.note else shown)


async def fs_ls(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return one name per line, sorted."""
    return await in_thread(lambda: _listed(setting.paths.find(arguments.get("path", ""))))


class FileExcerpt(msgspec.Struct, kw_only=True):
    """Lines of a file, with their ends; `note` reports omitted ones."""

    lines: list[str] = []
    note: str = ""


def read_part(place: AllowedPath, offset: int, limit: int | None, width: int) -> FileExcerpt:
    """Read `limit` lines (None for all) from line `offset` on, each cut at `width` bytes, up to `RESULT` bytes in all.

    Raises:
        ToolFailed: the file does not exist, is binary, or has fewer lines.
    """
    with place.opened() as descriptor, explained(place):
        size = regular(place, descriptor)
        with open(descriptor, "rb", closefd=False) as file:
            if b"\0" in file.peek(SNIFFED)[:SNIFFED]:
                raise ToolFailed(f"'{place.shown}' is a binary file of {size} bytes, not text")
            return _part(place, file, offset, limit, width)


def _asked(arguments: Arguments) -> tuple[int, int | None]:
    limit = arguments.get("limit")
    return int(arguments.get("offset") or 1), None if limit is None else int(limit)


def _part(place: AllowedPath, file: io.BufferedReader, offset: int, limit: int | None, width: int) -> FileExcerpt:
    part = FileExcerpt()
    number = kept = 0
    while True:
        # The only place where the thread notices a cancellation.
        if number % CHECKED_EVERY == 0:
            trio.from_thread.check_cancelled()
        line, whole = _line(file, width)
        if not line:
            break
        number += 1
        if number < offset:
            continue
        taken = len(part.lines)
        if limit is not None and taken >= limit:
            part.note = f"[lines {offset}-{number - 1}; the file goes on: offset {number}]"
            return part
        # At least one line is returned, so that the offset to continue from always advances.
        if kept and kept + len(line) > RESULT:
            part.note = f"[cut after line {number - 1}, {kept} bytes; the file goes on: offset {number}]"
            return part
        kept += len(line)
        text = line.decode(errors="replace")
        part.lines.append(text if whole else f"{text} [line cut after {width} bytes]\n")
    # An empty file has no first line, but reading it is not an error.
    if number < offset and (number or offset > 1):
        raise ToolFailed(f"'{place.shown}' has {number} lines; there is no line {offset}")
    return part


def _line(file: io.BufferedReader, width: int) -> tuple[bytes, bool]:
    """Return the next line, and True if it is complete.

    Of a longer line return its first `width` bytes, and skip the rest.
    """
    # Two more bytes for CRLF: a line of exactly `width` bytes is complete.
    line = file.readline(width + 2)
    if len(line.rstrip(b"\r\n")) <= width:
        return line, True
    rest = line
    while rest and not rest.endswith(b"\n"):
        trio.from_thread.check_cancelled()
        rest = file.readline(SNIFFED * 8)
    return line[:width], False


def _listed(place: AllowedPath) -> str:
    with place.opened() as descriptor, explained(place):
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return f"{place.name} (a file of {os.fstat(descriptor).st_size} bytes, not a directory)"
        with os.scandir(descriptor) as entries:
            names = sorted(_entry(entry, descriptor) for entry in filter(place.shows(), entries))
    shown = [os.fsencode(name).decode(errors="replace") for name in names[:ENTRIES]]
    if len(names) > ENTRIES:
        shown.append(f"[cut: {len(names) - ENTRIES} more]")
    return "\n".join(shown) or "(the directory is empty)"


def _entry(entry: os.DirEntry[str], directory: int) -> str:
    if entry.is_symlink():
        try:
            return f"{entry.name} -> {os.readlink(entry.name, dir_fd=directory)}"
        except OSError:  # The link was removed after `scandir`.
            return entry.name
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
