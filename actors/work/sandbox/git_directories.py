"""Git directories of a workspace: what git reads commands from, and may be told to trust.

A later `git status` outside of the sandbox executes what it finds in a git directory: `core.fsmonitor` of its
configuration, hooks, filters; and `commondir` or `config.worktree` lead it to other configuration. A list of such names
is no boundary: those that are not there yet can be made, and git learns new ones. So the directory is read-only as a
whole, with these exceptions:

- `objects`, `refs`, and `logs` are mounted again, writable (`GitDirectory.writable`).
- Files at the top that git replaces by a lock file and a rename (`index`, `HEAD`, ...) can't be mounted one by one: a
  mount can't be renamed over, and the lock file is made in the directory. The broker (`syscall_broker`) makes, renames,
  and removes files of these names for the process, and of no others.
- A new linked worktree is made by the broker, too. Of one that was there before, only these same names can be changed.

The forms of a git directory: `.git` in the workspace; a file `.git` that names one elsewhere (a linked worktree, a
submodule), with the directory that it shares with others (`commondir`); directories of submodules below `modules`, of
linked worktrees below `worktrees`; and a workspace that is one itself (a bare repository).

A file `.git` is untrusted text. A directory outside of what may be written is only opened up if it names this workspace
in return, which no process of the workspace can have arranged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from .policy import is_below

TREES = ("objects", "refs", "logs", "reftable")
"""Directories that git writes its data in, and reads no commands from."""

STATES = ("rebase-merge", "rebase-apply", "sequencer")
"""Directories of an operation that is under way: `git rebase` makes and removes them."""

NAMES = (
    "index",
    "index.*",
    "next-index-*",
    "sharedindex.*",
    "FETCH_HEAD",
    "ORIG_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "AUTO_MERGE",
    "MERGE_*",
    "SQUASH_MSG",
    "COMMIT_EDITMSG",
    "TAG_EDITMSG",
    "BISECT_*",
    "packed-refs",
    "packed-refs.*",
    "shallow",
    "gc.pid",
    "*.lock",
)
"""Files at the top of a git directory that git replaces, and reads no commands from."""

HEADS = ("HEAD",)
"""Files that a git directory is not one without. Were they removed or damaged, git would look for a bare repository in
the workspace itself, whose `config` is an ordinary file there. So modes of `writable` can't be changed either."""

SHARED_NAMES = ("packed-refs", "packed-refs.*", "*.lock")
"""Those that a linked worktree changes in the directory that it shares."""

LINKED = "worktrees"

MOST_MODULES = 200

_POINTER = re.compile(rb"gitdir: ([^\n\0]+)\n?")
_WORKTREE = re.compile(rb"^\s*worktree\s*=\s*\"?([^\"\n]+)\"?\s*$", re.MULTILINE)
_LONGEST = 64 * 1024


class GitDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that is read-only for a process but for what is named here.

    Attributes:
        path: of it, without links.
        writable: directories in it that are mounted writable.
        names: files at its top that the broker changes; `*` at the beginning or the end stands for any text.
        heads: files at its top that the broker replaces, but does not remove.
        trees: directories in it in which the broker changes everything.
        nurseries: directories in it in which the broker makes new directories, and changes those.
    """

    path: str
    writable: tuple[str, ...] = ()
    names: tuple[str, ...] = NAMES
    heads: tuple[str, ...] = HEADS
    trees: tuple[str, ...] = STATES
    nurseries: tuple[str, ...] = ()


class GitFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What is git's in directories that may be written.

    Attributes:
        directories: see `GitDirectory`.
        pointers: files that name one.
    """

    directories: tuple[GitDirectory, ...] = ()
    pointers: tuple[str, ...] = ()


def git_files(writes: Sequence[str]) -> GitFiles:
    """Find the git directories of these directories. Reads files.

    Args:
        writes: directories, without links.
    """
    found: dict[str, GitDirectory] = {}
    pointers = []
    for directory in writes:
        dot = os.path.join(directory, ".git")
        if is_git_directory(directory):
            found |= {each.path: each for each in _repository(directory)}
        if os.path.islink(dot):
            target = os.path.realpath(dot)
            if any(is_below(target, each) for each in writes) and is_git_directory(target):
                found |= {each.path: each for each in _repository(target)}
        elif os.path.isdir(dot):
            found |= {each.path: each for each in _repository(dot)}
        elif os.path.isfile(dot):
            pointers.append(dot)
            for each in _pointed_at(dot, writes):
                found.setdefault(each.path, each)
    for each in found.values():
        pointers += [path for path in _pointers_to(each.path) if any(is_below(path, other) for other in writes)]
    return GitFiles(directories=tuple(found.values()), pointers=tuple(dict.fromkeys(pointers)))


def _repository(path: str) -> Iterator[GitDirectory]:
    """Yield a git directory with those of its linked worktrees and submodules."""
    there = tuple(name for name in TREES if os.path.isdir(f"{path}/{name}"))
    missing = tuple(name for name in TREES if name not in there)
    writable = tuple(f"{path}/{name}" for name in there)
    yield GitDirectory(path=path, writable=writable, trees=(*STATES, *missing), nurseries=(LINKED,))
    for name in _listed(f"{path}/{LINKED}"):
        yield GitDirectory(path=f"{path}/{LINKED}/{name}", trees=(*STATES, *TREES))
    yield from _modules(f"{path}/modules")


def _modules(path: str) -> Iterator[GitDirectory]:
    """Yield the directories of submodules, whose names may have slashes, and of theirs."""
    waiting, left = [path], MOST_MODULES
    while waiting and left:
        directory = waiting.pop()
        for name in _listed(directory):
            below = f"{directory}/{name}"
            if is_git_directory(below):
                left -= 1
                # Without mounts: a repository may have hundreds of them, and each mount is paid for by every process.
                yield GitDirectory(path=below, trees=(*STATES, *TREES), nurseries=(LINKED,))
                waiting.append(f"{below}/modules")
            else:
                waiting.append(below)


def _pointed_at(pointer: str, writes: Sequence[str]) -> Iterable[GitDirectory]:
    target = _target(pointer)
    if not target or not is_git_directory(target):
        return []
    is_ours = any(is_below(target, each) for each in writes)
    if not is_ours and not _names_in_return(target, os.path.dirname(pointer)):
        return []
    common = _common(target)
    if common == target:
        return _repository(target) if is_ours else [GitDirectory(path=target, trees=(*STATES, *TREES))]
    own = GitDirectory(path=target, trees=(*STATES, *TREES))
    if any(is_below(common, each) for each in writes):
        return [*_repository(common), own]
    return [own, GitDirectory(path=common, names=SHARED_NAMES, heads=(), trees=TREES)]


def _target(pointer: str) -> str:
    match = _POINTER.fullmatch(_text(pointer))
    return os.path.realpath(os.path.join(os.path.dirname(pointer), os.fsdecode(match[1]))) if match else ""


def _common(target: str) -> str:
    text = os.fsdecode(_text(f"{target}/commondir").rstrip(b"\n"))
    return os.path.realpath(os.path.join(target, text)) if text else target


def _names_in_return(target: str, workspace: str) -> bool:
    """Return whether a git directory outside says that this is its working tree, as git writes it for both forms."""
    return f"{workspace}/.git" in _pointers_to(target)


def _pointers_to(path: str) -> list[str]:
    """Return the files `.git` that a git directory knows to name it: that of a linked worktree, or of a submodule."""
    if os.path.basename(os.path.dirname(path)) == LINKED:
        named = [_text(f"{path}/gitdir").rstrip(b"\n")]
    else:
        named = [each + b"/.git" for each in _WORKTREE.findall(_text(f"{path}/config"))]
    found = (os.path.realpath(os.path.join(path, os.fsdecode(each))) for each in named if each)
    return [pointer for pointer in found if os.path.isfile(pointer)]


def is_git_directory(path: str) -> bool:
    """Return whether git would take it for one, by the marks that git itself looks at."""
    if not os.path.lexists(f"{path}/HEAD"):
        return False
    return os.path.exists(f"{path}/commondir") or (os.path.isdir(f"{path}/objects") and os.path.isdir(f"{path}/refs"))


def _listed(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _text(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST)
    except OSError:
        return b""
