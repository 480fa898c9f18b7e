"""Files of a workspace that need trust, and the workspace's root directory.

    instructions   AGENTS.md, else CLAUDE.md, of any directory; and files that they import as `@path`
    skills         all files of .agents/skills, .claude/skills, .callboard/skills
    hooks          .callboard/hooks.json, .claude/settings.json, .claude/settings.local.json,
                   and all files of .callboard/hooks, .claude/hooks
    servers        .mcp.json

The root is that of the enclosing repository, or the directory itself. All searches are bounded, and only read names and
files: nothing of the directory is executed. A file is used only if its real path is in the workspace: a `CLAUDE.md`
that links to a key file outside is ignored.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

MOST_LEVELS = 40


def root_of(directory: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the workspace of a directory, with links resolved; None where none is possible.

    The home directory and its parents are no workspaces: files there belong to the user and to other programs.
    """
    here = Path(os.path.realpath(directory))
    home = Path(os.path.realpath(environ.get("HOME") or Path.home()))
    if _holds(here, home):
        return None
    for place in (here, *here.parents)[:MOST_LEVELS]:
        # A repository that contains the home directory must not make all of it a workspace.
        if _holds(place, home):
            break
        # `lexists`: in worktrees and submodules, `.git` is a file or a link.
        if os.path.lexists(place / ".git"):
            return place
    return here


def levels(directory: Path, root: Path) -> list[Path]:
    """Return the directories from this one up to the root of its workspace, nearest first."""
    here = Path(os.path.realpath(directory))
    if here != root and root not in here.parents:
        return [root]
    return [place for place in (here, *here.parents) if place == root or root in place.parents]


def _holds(place: Path, home: Path) -> bool:
    return place == home or place in home.parents


# --- files that need trust


Kind = Literal["instructions", "skills", "hooks", "servers"]

INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
"""Names of instructions files; the first existing one of a directory is used."""

SKILLS = (".callboard/skills", ".agents/skills", ".claude/skills")
HOOKS = (".callboard/hooks.json", ".claude/settings.json", ".claude/settings.local.json")
OF_HOOKS = (".callboard/hooks", ".claude/hooks")
SERVERS = ".mcp.json"

LARGEST = 512 * 1024
"""Maximum bytes of a file; larger files are ignored."""

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
    """Return a file's bytes; None if it is missing, too large, or outside of the workspace."""
    try:
        real = Path(os.path.realpath(path))
    except ValueError:  # a NUL in the path
        return None
    if root not in real.parents:
        return None
    try:
        # O_NOFOLLOW refuses a link that replaced the file since `realpath`; O_NONBLOCK keeps a FIFO from blocking.
        handle = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(handle, "rb") as file:  # noqa: PTH123 - of a descriptor
        # A directory on the way may have been replaced by a link meanwhile.
        if Path(f"/proc/self/fd/{handle}").readlink() != real:
            return None
        about = os.fstat(handle)
        # Checked on the open file, so that it cannot change its kind afterwards.
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            return None
        data = file.read(LARGEST + 1)
    return data if len(data) <= LARGEST else None


def count_files(root: Path, places: list[Path]) -> dict[Kind, int]:
    """Return the number of items of each kind for work in the first of `places`. Fast: reads no file."""
    found: dict[Kind, int] = {
        "instructions": sum(any((place / name).is_file() for name in INSTRUCTIONS) for place in places),
        "skills": sum(1 for _ in skill_directories(root)),
        "hooks": sum((root / name).is_file() for name in HOOKS),
        "servers": int((root / SERVERS).is_file()),
    }
    return {kind: count for kind, count in found.items() if count}


def skill_directories(root: Path) -> Iterator[Path]:
    """Yield the directories of a workspace's skills, or of a user's home."""
    for folder in SKILLS:
        try:
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError:
            continue
        yield from (Path(entry.path) for entry in entries[:MOST_FILES] if entry.is_dir())


def files(root: Path) -> dict[str, Kind]:
    """Return all files that need trust with their kinds, by path relative to the root.

    Bounded: later files are ignored.
    """
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
    """Return the workspace files that an instructions file imports as `@path`, directly and indirectly."""
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
    """Return the paths after `@` in a text, relative to its file. Code blocks and absolute paths are ignored."""
    found: dict[str, None] = {}
    fence = ""
    for line in text.splitlines():
        if mark := _FENCE.match(line):
            fence = "" if fence == mark[1] else fence or mark[1]
            continue
        if not fence:
            # In inline code, `@` is a decorator or a package name.
            found.update((name.rstrip(".,;:)"), None) for name in _IMPORT.findall(_SPAN.sub("", line)))
    return [name for name in found if name and not name.startswith(("~", "/"))]


def _instructions(root: Path) -> Iterator[Path]:
    """Yield the instructions files below the root, up to a limited depth, nearest first."""
    # Breadth first, so that the bound on directories cuts off the deepest files.
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
    """Yield the files below a directory, without following links to directories."""
    count = 0
    for where, directories, names in os.walk(folder):
        directories[:] = sorted(name for name in directories if name not in _SKIPPED and name != ".git")
        for name in sorted(names):
            yield Path(where) / name
            count += 1
            if count >= MOST_FILES:
                return
