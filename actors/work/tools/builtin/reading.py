"""fs_cat, fs_read and fs_ls: bounded looks at files and directories.

A result holds at most `RESULT` bytes. What was left out is said in a last line in brackets, with the offset to go on
from. Text is UTF-8; bytes that are not become U+FFFD. A file with a NUL among its first bytes is binary, and only told.
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
"""Bytes of a file that one call returns at most."""

LINES = 2000
"""Lines that fs_read returns by default."""

WIDTH = 2000
"""Bytes of a line that fs_read shows."""

ENTRIES = 2000
"""Names that fs_ls shows."""

SNIFFED = 8192
CHECKED_EVERY = 1024


async def fs_cat(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """The file's text as it is, or those lines of it."""
    find, (offset, limit) = setting.paths.find, _asked(arguments)
    part = await in_thread(lambda: read_part(find(arguments["path"]), offset, limit, RESULT))
    text = "".join(part.lines)
    if not part.note:
        return text or "(the file is empty)"
    return f"{text}\n{part.note}" if text and not text.endswith("\n") else text + part.note


async def fs_read(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Lines with their numbers."""
    find, (offset, limit) = setting.paths.find, _asked(arguments)
    part = await in_thread(lambda: read_part(find(arguments["path"]), offset, limit or LINES, WIDTH))
    if not part.lines:
        return part.note or "(the file is empty)"
    shown = [f"{number:>6}\t{line.rstrip(chr(10)).rstrip(chr(13))}" for number, line in enumerate(part.lines, offset)]
    return "\n".join([*shown, part.note] if part.note else shown)


async def fs_ls(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """One name per line, sorted."""
    return await in_thread(lambda: _listed(setting.paths.find(arguments.get("path", ""))))


class Part(msgspec.Struct, kw_only=True):
    """Some lines of a file, with their ends; `note` says what is left out."""

    lines: list[str] = []
    note: str = ""


def read_part(place: AllowedPath, offset: int, limit: int | None, width: int) -> Part:
    """Read `limit` lines (None for all) from line `offset` on, cutting each at `width` bytes, up to `RESULT` in all.

    Raises:
        ToolFailed: there is no such file, it is binary, or has fewer lines.
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


def _part(place: AllowedPath, file: io.BufferedReader, offset: int, limit: int | None, width: int) -> Part:
    part = Part()
    number = kept = 0
    while True:
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
        if kept and kept + len(line) > RESULT:
            part.note = f"[cut after line {number - 1}, {kept} bytes; the file goes on: offset {number}]"
            return part
        kept += len(line)
        text = line.decode(errors="replace")
        part.lines.append(text if whole else f"{text} [line cut after {width} bytes]\n")
    if number < offset and (number or offset > 1):
        raise ToolFailed(f"'{place.shown}' has {number} lines; there is no line {offset}")
    return part


def _line(file: io.BufferedReader, width: int) -> tuple[bytes, bool]:
    """The next line and whether it is whole; of a longer one its first `width` bytes, and the rest is skipped."""
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
        except OSError:  # it went away meanwhile
            return entry.name
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
