"""Search for files by name, or for lines by regular expression; the process of fs_glob and fs_grep.

The search runs in a separate process, because a regular expression may backtrack for hours and would hold the
interpreter's lock of the main process meanwhile. Here an alarm interrupts even that, and the hits so far are still
reported.

The program reads a task as JSON from stdin and writes the result as JSON to stdout. It walks directories by descriptors
and follows no link, and therefore stays below the given directory. Paths that the permissions bar are neither read nor
named.
"""

from __future__ import annotations

import heapq
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from typing import Any, NamedTuple

SKIPPED = frozenset(
    (".git", ".hg", ".svn", ".jj", "__pycache__", "node_modules", ".venv", ".tox", ".mypy_cache", ".ruff_cache")
)
"""Directories that are skipped unless the search starts in one. A directory with a CACHEDIR.TAG is skipped too."""

LARGEST = 16 * 1024 * 1024
"""Maximum bytes of a file that is searched."""

DEEPEST = 100
ALTERNATIVES = 64
SNIFFED = 8192

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16 files, as Windows programs write them."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Segments = list["re.Pattern[str] | None"]


class Mistake(Exception):
    """An invalid pattern. The text is for its author."""


class OutOfTime(BaseException):
    """Raised by the alarm. A `BaseException`, so that no error handler catches it."""


class SearchedFile(NamedTuple):
    """A file found by the walk.

    Attributes:
        directory: descriptor of its directory.
        entry: its entry in that directory.
        path: relative to the start of the search.
    """

    directory: int
    entry: os.DirEntry[str]
    path: str


# --- globs


class Glob:
    """A path pattern. Without a '/' it matches the name alone, else the path; `**` matches any directories.

    Raises:
        Mistake: the pattern is invalid, or leaves the directory.
    """

    def __init__(self, pattern: str) -> None:
        self.by_name = "/" not in pattern
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise Mistake(
                f"the pattern '{pattern}' matches paths outside of the directory; name the directory in `path`"
            )
        self._rows = [_segments(one) for one in _alternatives(pattern.removeprefix("./"))]

    def matches(self, path: str) -> bool:
        """Return True if a path, relative to the start of the search, matches."""
        parts = [path.rsplit("/", 1)[-1]] if self.by_name else path.split("/")
        return any(_fits(row, parts) for row in self._rows)


def _alternatives(pattern: str) -> list[str]:
    """Expand `{a,b}`. An unpaired brace is literal."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        if len(todo) + len(done) > ALTERNATIVES:
            raise Mistake(f"the pattern '{pattern[:100]}' has more than {ALTERNATIVES} alternatives in braces")
        one = todo.pop()
        inner = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if inner is None:
            done.append(one)
        else:
            todo += [one[: inner.start()] + choice + one[inner.end() :] for choice in inner[1].split(",")]
    return done


def _segments(pattern: str) -> Segments:
    row: Segments = []
    for part in pattern.split("/"):
        if part == "**":
            if not row or row[-1] is not None:
                row.append(None)
        elif part not in ("", "."):
            row.append(re.compile(translate(part)))
    if row and row[-1] is None:
        row.append(re.compile(translate("*")))
    return row


def _fits(row: Segments, parts: Sequence[str]) -> bool:
    """Return True if a row of segments matches.

    Tracks all reachable positions, so that many `**` cost no more than few.
    """
    # All positions that the parts so far can reach: no backtracking, whatever the number of `**`.
    reached = {0}
    for part in parts:
        ahead: set[int] = set()
        for at in _beyond_stars(row, reached):
            if at < len(row):
                segment = row[at]
                if segment is None:
                    ahead.add(at)
                elif segment.match(part):
                    ahead.add(at + 1)
        reached = ahead
    return len(row) in reached


def _beyond_stars(row: Segments, reached: set[int]) -> set[int]:
    return reached | {at + 1 for at in reached if at < len(row) and row[at] is None}


# --- paths that the permissions bar


class Barred:
    """The bars of a `FileAccess`, from the task.

    Attributes:
        whole: True if no path below a barred directory can be allowed.
    """

    def __init__(self, task: dict[str, Any]) -> None:
        flags = re.IGNORECASE if task["fold"] else 0
        self._base = os.path.join(task["root"], *task["parts"])  # noqa: PTH118 - texts
        self._bars = [
            (
                frozenset(bar["verdicts"]),
                [(verdict, re.compile(each, 0 if verdict == "allow" else flags)) for verdict, each in bar["rows"]],
            )
            for bar in task["bars"]
        ]
        self.whole = not any(verdict == "allow" for _, rows in self._bars for verdict, _ in rows)

    def __call__(self, path: str, entry: os.DirEntry[str]) -> bool:
        """Return True if the entry at `path`, relative to the start of the search, is barred."""
        if not self._bars:
            return False
        whole = os.path.join(self._base, path)  # noqa: PTH118 - texts
        forms = [whole, os.path.realpath(whole)] if entry.is_symlink() else [whole]
        return any(_verdict(rows, forms) in verdicts for verdicts, rows in self._bars)


def _verdict(rows: list[tuple[str, re.Pattern[str]]], forms: list[str]) -> str | None:
    for verdict, expression in rows:
        found = map(expression.match, forms)
        if all(found) if verdict == "allow" else any(found):
            return verdict
    return None


# --- walking


def walk(directory: int, barred: Barred, prefix: str = "", depth: int = 0) -> Iterator[SearchedFile]:
    """Yield every file below, ordered by name, except barred and skipped ones (`SKIPPED`, `DEEPEST`).

    Descriptors are valid only until the next step.
    """
    try:
        with os.scandir(directory) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return
    # The tag is ignored in the directory where the search starts, because the caller has named it.
    if depth and any(entry.name == "CACHEDIR.TAG" for entry in entries):
        return
    for entry in entries:
        path = prefix + entry.name
        is_barred = barred(path, entry)
        if not entry.is_dir(follow_symlinks=False):
            if not is_barred:
                yield SearchedFile(directory, entry, path)
        # A longer `allow` pattern may permit files below a barred directory. It is skipped only if no rule allows
        # anything.
        elif entry.name not in SKIPPED and depth < DEEPEST and not (is_barred and barred.whole):
            try:
                below = os.open(entry.name, _DIRECTORY, dir_fd=directory)
            except OSError:
                continue
            try:
                yield from walk(below, barred, path + "/", depth + 1)
            finally:
                os.close(below)


def descend(root: str, parts: Sequence[str]) -> int:
    """Return a descriptor of the start of the search, reached without following a link."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        below = os.open(part, _FILE, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    return descriptor


# --- the two tasks


def find_names(task: dict[str, Any], found: dict[str, Any]) -> None:
    """Execute fs_glob: collect the matching paths in `found["hits"]`, the most recently changed first.

    Raises:
        Mistake: the pattern is invalid.
    """
    glob = Glob(task["pattern"])
    limit = task["hits"]
    newest: list[tuple[float, str]] = []
    count = 0
    try:
        for file in walk(descend(task["root"], task["parts"]), Barred(task)):
            if not glob.matches(file.path):
                continue
            try:
                changed = os.stat(file.entry.name, dir_fd=file.directory, follow_symlinks=False).st_mtime
            except OSError:
                continue
            count += 1
            # A heap of the newest files bounds the memory, however many files match.
            (heapq.heappush if count <= limit else heapq.heappushpop)(newest, (changed, file.path))
    finally:
        # Also after the alarm: the files found so far are reported.
        newest.sort(key=lambda one: (-one[0], one[1]))
        found.update(hits=[printable_path(path) for _, path in newest], more=max(count - limit, 0))


def find_lines(task: dict[str, Any], found: dict[str, Any]) -> None:
    """Execute fs_grep: collect the matching lines in `found["hits"]` as (path, number, text).

    Raises:
        Mistake: the regular expression, or the glob of file names, is invalid.
    """
    try:
        expression = re.compile(task["pattern"])
    except (re.error, RecursionError, OverflowError) as error:
        raise Mistake(f"the pattern is not a valid regular expression: {error}") from None
    include = Glob(task["include"]) if task["include"] else None
    hits = found["hits"]
    start = descend(task["root"], task["parts"])
    files: Iterable[SearchedFile] = ()
    if stat.S_ISREG(os.fstat(start).st_mode):
        _search(start, "", expression, task, found)
    else:
        files = walk(start, Barred(task))
    for file in files:
        if include is not None and not include.matches(file.path):
            continue
        try:
            descriptor = os.open(file.entry.name, _FILE, dir_fd=file.directory)
        except OSError:
            continue
        if not _search(descriptor, file.path, expression, task, found) or len(hits) > task["hits"]:
            break
    if len(hits) > task["hits"]:
        del hits[task["hits"] :]
        found["cut"] = "hits"


def _search(
    descriptor: int, path: str, expression: re.Pattern[str], task: dict[str, Any], found: dict[str, Any]
) -> bool:
    """Search one file; return False if there are enough hits."""
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return True
        if status.st_size > LARGEST:
            found["skipped"] += 1
            return True
        head = file.peek(SNIFFED)[:SNIFFED]
        lines: Iterable[bytes] = file
        # UTF-16 text contains NULs, so this test precedes the one for binary files.
        if head.startswith(_UTF_16):
            lines = file.read().decode("utf-16", errors="replace").encode().splitlines(keepends=True)
        elif b"\0" in head:
            return True
        for number, raw in enumerate(lines, 1):
            if number == 1:
                raw = raw.removeprefix(_BYTE_ORDER_MARK)
            line = raw.rstrip(b"\r\n").decode(errors="replace")
            hit = expression.search(line)
            if hit is not None:
                found["hits"].append((printable_path(path), number, _window(line, hit.start(), task["width"])))
                if len(found["hits"]) > task["hits"]:
                    found["cut"] = "hits"
                    return False
    return True


def _window(line: str, at: int, width: int) -> str:
    """Return the line, or of a long one the part around the hit."""
    if len(line) <= width:
        return line
    first = max(min(at - width // 4, len(line) - width), 0)
    return ("..." if first else "") + line[first : first + width] + ("..." if first + width < len(line) else "")


def printable_path(path: str) -> str:
    """Return a file name as text, with undecodable bytes replaced."""
    return os.fsencode(path).decode(errors="replace")


def main() -> None:
    """Execute the task from stdin and print the result, after its `seconds` with the hits found by then."""
    task = json.load(sys.stdin)
    found: dict[str, Any] = {"hits": [], "more": 0, "skipped": 0, "cut": ""}

    def alarm(*_: object) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, alarm)
    # The `re` module checks for signals while it backtracks, so the alarm interrupts it.
    signal.setitimer(signal.ITIMER_REAL, task["seconds"])
    try:
        (find_names if task["task"] == "glob" else find_lines)(task, found)
    except OutOfTime:
        found["cut"] = "time"
    except Mistake as mistake:
        found["mistake"] = str(mistake)
    except OSError as error:
        found["mistake"] = f"the directory can't be searched: {error.strerror}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
