"""Built-in tools that read: fs_cat, fs_read, fs_ls, fs_glob and fs_grep.

A result contains at most `RESULT` bytes. A last line in brackets reports omitted text, with the offset to continue
from. Text is UTF-8; invalid bytes become U+FFFD. A file with a NUL among its first bytes is binary; its content is not
returned.

fs_glob and fs_grep are bounded in hits and in seconds. The search itself is a process, `workers/search.py`, because a
regular expression of a model may not terminate.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from .....protocol.errors import TimedOut, ToolFailed
from ..tool import Arguments
from .allowed_paths import AllowedPath, AllowedPaths, Setting, explained, in_thread, regular

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
    """Return the file's text unchanged, or a range of its lines; a note replaces text beyond `RESULT` bytes."""
    find, (offset, limit) = setting.paths.find, _asked(arguments)
    part = await in_thread(lambda: read_part(find(arguments["path"]), offset, limit, RESULT))
    text = "".join(part.lines)
    if not part.note:
        return text or "(the file is empty)"
    return f"{text}\n{part.note}" if text and not text.endswith("\n") else text + part.note


async def fs_read(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return lines with their numbers, `LINES` of them by default, each cut after `WIDTH` bytes."""
    find, (offset, limit) = setting.paths.find, _asked(arguments)
    part = await in_thread(lambda: read_part(find(arguments["path"]), offset, limit or LINES, WIDTH))
    if not part.lines:
        return part.note or "(the file is empty)"
    shown = [f"{number:>6}\t{line.rstrip(chr(10)).rstrip(chr(13))}" for number, line in enumerate(part.lines, offset)]
    return "\n".join([*shown, part.note] if part.note else shown)


async def fs_ls(_me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return one name per line, sorted, `ENTRIES` at most; for a file, one line with its size."""
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
            part.note = f"[lines {offset}-{number - 1}; to read on, use offset {number}]"
            return part
        # At least one line is returned, so that the offset to continue from always advances.
        if kept and kept + len(line) > RESULT:
            part.note = f"[cut after line {number - 1}, {kept} bytes; to read on, use offset {number}]"
            return part
        kept += len(line)
        text = line.decode(errors="replace")
        part.lines.append(text if whole else f"{text} [line cut after {width} bytes]\n")
    # An empty file has no first line, but reading it is not an error.
    if number < offset and (number or offset > 1):
        raise ToolFailed(f"'{place.shown}' has {number} lines, so there is no line {offset}")
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


# --- fs_glob and fs_grep


WORKER = Path(__file__).with_name("workers") / "search.py"

MOST_NAMES = 200
"""Maximum paths that fs_glob returns."""

MOST_HITS = 200
"""Maximum lines that fs_grep returns."""

MATCH_WIDTH = 400
"""Maximum characters of a line in the result of fs_grep."""

SEARCH_SECONDS = 20.0
"""Seconds for one search; hits found by then are returned."""

SEARCH_MARGIN = 5.0
"""Additional seconds after which a search that does not react to its alarm is killed."""


async def fs_glob(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return the paths that match, the most recently changed first, `MOST_NAMES` at most."""
    text = arguments.get("path", "")
    found = await _searched(me, setting, text, task="glob", pattern=arguments["pattern"], hits=MOST_NAMES)
    notes = [_joined(text, path) for path in found["hits"]]
    if found["more"]:
        notes.append(f"[cut: {found['more']} more files match, all of them older]")
    return _matches_text(notes, found, f"no file matches {arguments['pattern']}")


async def fs_grep(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return hits as path:line:text, `MOST_HITS` at most."""
    text = arguments.get("path", "")
    options = {
        "pattern": arguments["pattern"],
        "include": arguments.get("include", ""),
        "hits": MOST_HITS,
        "width": MATCH_WIDTH,
    }
    found = await _searched(me, setting, text, task="grep", **options)
    notes = [f"{_joined(text, path)}:{number}:{line}" for path, number, line in found["hits"]]
    if found["cut"] == "hits":
        notes.append(f"[cut after {MOST_HITS} hits; narrow the pattern, the path or `include`]")
    if found["skipped"]:
        notes.append(f"[{found['skipped']} files were too large to be searched]")
    return _matches_text(notes, found, "nothing found")


async def _searched(me: Actor, setting: Setting, path: str, **task: Any) -> dict[str, Any]:
    from .....supervisors.process import run_process

    place = await in_thread(lambda: _checked(setting.paths, path))
    seconds = min(SEARCH_SECONDS, setting.timeout)
    task |= {"root": str(place.root), "parts": place.parts, "seconds": seconds, **place.access.to_wire()}
    try:
        done = await run_process(
            me,
            [sys.executable, "-I", "-S", "-B", str(WORKER)],
            name="search",
            input=msgspec.json.encode(task),
            cwd=place.root,
            timeout=seconds + SEARCH_MARGIN,
        )
    except TimedOut:
        raise ToolFailed(
            f"the search did not finish within {seconds + SEARCH_MARGIN:g} s; use a simpler pattern"
        ) from None
    if done.status != 0 or done.truncated:
        raise ToolFailed(f"the search process failed with status {done.status}", stderr=done.stderr_tail)
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    if "mistake" in found:
        raise ToolFailed(found["mistake"])
    return found


def _checked(paths: AllowedPaths, path: str) -> AllowedPath:
    place = paths.find(path)
    # Opened only for its errors: a missing path must not look like a search without hits.
    with place.opened():
        return place


def _joined(text: str, path: str) -> str:
    if not path:
        return text
    return path if text in ("", ".", "./") else f"{text.rstrip('/')}/{path}"


def _matches_text(lines: list[str], found: dict[str, Any], nothing: str) -> str:
    if found["cut"] == "time":
        lines.append(f"[cut: the search took more than {SEARCH_SECONDS:g} s; narrow the pattern or the path]")
    return "\n".join(lines) or f"({nothing})"
