"""The files of a workspace that would count if it were trusted, and reading them.

    instructions   AGENTS.md, else CLAUDE.md, of any directory; and what they name as `@path`
    skills         all files of .agents/skills, .claude/skills, .callboard/skills
    hooks          .callboard/hooks.json, .claude/settings.json, .claude/settings.local.json,
                   and all files of .callboard/hooks, .claude/hooks
    servers        .mcp.json

All searches are bounded, and look at names and files alone: nothing of the directory is run. A file counts only if it
lies in the workspace, whatever links lead to it: a `CLAUDE.md` that is a link to a key outside is none.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Kind = Literal["instructions", "skills", "hooks", "servers"]

INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
"""Of one directory the first that is there counts."""

SKILLS = (".callboard/skills", ".agents/skills", ".claude/skills")
HOOKS = (".callboard/hooks.json", ".claude/settings.json", ".claude/settings.local.json")
OF_HOOKS = (".callboard/hooks", ".claude/hooks")
SERVERS = ".mcp.json"

LARGEST = 512 * 1024
"""Bytes of a file that counts."""

MOST_FILES = 2_000
MOST_DIRECTORIES = 5_000
DEEPEST = 8
MOST_IMPORTS = 50
DEEPEST_IMPORT = 5

_SKIPPED = frozenset(("node_modules", "venv", "__pycache__", "target", "dist", "build", "vendor"))
_IMPORT = re.compile(r"(?:^|(?<=\s))@(\S+)")
_FENCE = re.compile(r"^\s*(```|~~~)")
_SPAN = re.compile(r"`[^`\n]*`")


def read_inside(root: Path, path: Path) -> bytes | None:
    """A file's bytes; None if it is none, is too large, or lies outside of the workspace."""
    try:
        real = Path(os.path.realpath(path))
    except ValueError:  # a NUL in the path
        return None
    if root not in real.parents:
        return None
    try:
        handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(handle, "rb") as file:  # noqa: PTH123 - of a descriptor
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            return None
        data = file.read(LARGEST + 1)
    return data if len(data) <= LARGEST else None


def here(root: Path, places: list[Path]) -> dict[Kind, int]:
    """How much of each kind the workspace seems to offer to who works in the first of `places`: a quick look."""
    found: dict[Kind, int] = {
        "instructions": sum(any((place / name).is_file() for name in INSTRUCTIONS) for place in places),
        "skills": sum(1 for _ in skill_directories(root)),
        "hooks": sum((root / name).is_file() for name in HOOKS),
        "servers": int((root / SERVERS).is_file()),
    }
    return {kind: count for kind, count in found.items() if count}


def skill_directories(root: Path) -> Iterator[Path]:
    """The directories of a workspace's skills, or of a user's home."""
    for folder in SKILLS:
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError:
            continue
        yield from (Path(entry.path) for entry in entries[:MOST_FILES] if entry.is_dir())


def files(root: Path) -> dict[str, Kind]:
    """All files that would count, seen from the root, with what they are. Bounded; the first ones count."""
    found: dict[str, Kind] = {}

    def add(path: Path, kind: Kind) -> None:
        if len(found) < MOST_FILES:
            found.setdefault(os.path.relpath(path, root), kind)

    for name in HOOKS:
        if (root / name).is_file():
            add(root / name, "hooks")
    for folder in OF_HOOKS:
        for path in _below(root / folder):
            add(path, "hooks")
    if (root / SERVERS).is_file():
        add(root / SERVERS, "servers")
    for directory in skill_directories(root):
        for path in _below(directory):
            add(path, "skills")
    for path in _instructions(root):
        add(path, "instructions")
        for each in imports(root, path):
            add(each, "instructions")
    return found


def imports(root: Path, path: Path) -> list[Path]:
    """The files of the workspace that an instructions file names as `@path`, and those that they name in turn."""
    found: dict[Path, None] = {}
    todo = [(path, 0)]
    while todo and len(found) < MOST_IMPORTS:
        file, depth = todo.pop(0)
        data = read_inside(root, file)
        for name in () if data is None or depth >= DEEPEST_IMPORT else imported_in(data.decode("utf-8", "replace")):
            other = Path(os.path.normpath(file.parent / name))
            if other != path and other not in found and read_inside(root, other) is not None:
                found[other] = None
                todo.append((other, depth + 1))
    return list(found)


def imported_in(text: str) -> list[str]:
    """The paths behind `@` in a text, seen from where it stands. In code, `@` is code; absolute paths don't count."""
    found: dict[str, None] = {}
    fence = ""
    for line in text.splitlines():
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
            continue
        if not fence:
            found.update((name.rstrip(".,;:)"), None) for name in _IMPORT.findall(_SPAN.sub("", line)))
    return [name for name in found if name and not name.startswith(("~", "/"))]


def _instructions(root: Path) -> Iterator[Path]:
    """Every instructions file below the root, as far down as is cheap; the nearest first."""
    todo = [(root, 0)]
    looked = 0
    while todo and looked < MOST_DIRECTORIES:
        directory, depth = todo.pop(0)
        looked += 1
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            continue
        names = {entry.name for entry in entries}
        yield from (directory / name for name in INSTRUCTIONS if name in names and (directory / name).is_file())
        if depth < DEEPEST:
            todo += [
                (Path(entry.path), depth + 1)
                for entry in entries
                if not entry.name.startswith(".") and entry.name not in _SKIPPED and entry.is_dir(follow_symlinks=False)
            ]


def _below(folder: Path) -> Iterator[Path]:
    """The files of a directory and of those in it, links to directories left out."""
    count = 0
    for where, directories, names in os.walk(folder):
        directories[:] = sorted(name for name in directories if name not in _SKIPPED and name != ".git")
        for name in sorted(names):
            yield Path(where) / name
            count += 1
            if count >= MOST_FILES:
                return
