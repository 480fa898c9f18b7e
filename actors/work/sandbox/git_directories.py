"""Git directories of a workspace: protection of the files from which git reads commands.

Problem: a later `git status` outside of the sandbox executes commands from a git directory: `core.fsmonitor`, hooks,
filters. `commondir` and `config.worktree` refer to further configuration. A list of such names is no boundary, because
missing files can be created and git learns new names. So the whole directory is read-only, with these exceptions:

- `objects`, `refs`, and `logs` are mounted again, writable (`policy.GitDirectory.writable`).
- Git replaces files at the top (`index`, `HEAD`, ...) by a lock file and a rename. They can't be mounted one by one: a
  mount can't be renamed over, and the lock file is created in the directory. The broker (`syscall_broker`) creates,
  renames, and removes files of these names for the process, and of no others.
- The broker creates new linked worktrees, too. In an existing one only these same names can be changed.

A git directory has these forms: `.git` in the workspace; a file `.git` that names a directory outside (a linked
worktree, a submodule), with the directory that it shares (`commondir`); submodules below `modules` and linked worktrees
below `worktrees`; and a workspace that is a bare repository itself.

Git also enters the directory of each submodule in the index, whatever repository is there: `git status` executes what
that repository configures. So the broker adds no submodule to an index (`syscall_broker.gitlinks`). The `.git` of
existing submodules is protected like that of the workspace. A submodule directory without `.git` is read-only.

A file `.git` is untrusted text. A directory outside of the writable paths is only opened up if it names this workspace
in return: no process of the workspace can have arranged that.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ....supervisors.syscall_broker import gitlinks
from .policy import GitDirectory, is_below

TREES = ("objects", "refs", "logs", "reftable")
"""Directories in which git stores data and from which it reads no commands."""

STATES = ("rebase-merge", "rebase-apply", "sequencer")
"""Directories of an operation in progress: `git rebase` creates and removes them."""

NAMES = (
    "index",
    "index.*",
    "next-index-*",
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
"""Files at the top of a git directory that git replaces and from which it reads no commands."""

HEADS = ("HEAD",)
"""Files without which a directory is no git directory. If they were removed or damaged, git would look for a bare
repository in the workspace itself, whose `config` is an ordinary file. For the same reason modes of `writable` can't be
changed."""

SHARED_NAMES = ("packed-refs", "packed-refs.*", "*.lock")
"""Names that a linked worktree changes in the directory that it shares."""

LINKED = "worktrees"

MOST_MODULES = 200

SHA1, SHA256 = 20, 32

DEEPEST = 20
"""Nesting depth of submodules at most."""

KEPT = 100
"""Cached results of reading an index."""

_INDEXES: dict[str, tuple[tuple[int, int, int] | None, frozenset[bytes]]] = {}

_POINTER = re.compile(rb"gitdir: ([^\n\0]+)\n?")
_WORKTREE = re.compile(rb"^\s*worktree\s*=\s*\"?([^\"\n]+)\"?\s*$", re.MULTILINE)
_LONGEST = 64 * 1024


class GitFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Git directories and pointer files found in writable directories.

    Attributes:
        directories: the git directories.
        pointers: files `.git` that name a git directory, and submodule directories without one.
    """

    directories: tuple[GitDirectory, ...] = ()
    pointers: tuple[str, ...] = ()


def git_files(writes: Sequence[str]) -> GitFiles:
    """Find the git directories of these directories. Reads files.

    Args:
        writes: directories, without links.
    """
    found: dict[str, GitDirectory] = {}
    pointers: list[str] = []
    for directory in writes:
        if is_git_directory(directory):
            found |= {each.path: each for each in _repository(directory)}
        _add_worktree(directory, writes, found, pointers)
    # Linked worktrees and submodules may be anywhere below `writes`: only their git directories record the place.
    for each in list(found.values()):
        for path in _pointers_to(each.path):
            if path not in pointers and any(is_below(path, other) for other in writes):
                _add_worktree(os.path.dirname(path), writes, found, pointers, 1)
    return GitFiles(directories=tuple(found.values()), pointers=tuple(dict.fromkeys(pointers)))


def _add_worktree(
    directory: str, writes: Sequence[str], found: dict[str, GitDirectory], pointers: list[str], depth: int = 0
) -> None:
    """Add the git directory of a working tree, and the git directories of its submodules."""
    dot = os.path.join(directory, ".git")
    own = ""
    if os.path.islink(dot):
        target = os.path.realpath(dot)
        if any(is_below(target, each) for each in writes) and is_git_directory(target):
            found |= {each.path: each for each in _repository(target)}
            own = target
    elif os.path.isdir(dot):
        found |= {each.path: each for each in _repository(dot)}
        own = dot
    elif os.path.isfile(dot):
        pointers.append(dot)
        for each in _pointed_at(dot, writes):
            found.setdefault(each.path, each)
        own = _target(dot)
    elif depth:
        pointers.append(directory)
    if own and depth < DEEPEST:
        for name in _submodules(own):
            below = os.path.join(directory, os.fsdecode(name))
            # Git does not follow a link to a submodule.
            if os.path.realpath(below) == below and is_below(below, directory) and below != directory:
                _add_worktree(below, writes, found, pointers, depth + 1)


def _submodules(path: str) -> Iterable[bytes]:
    """Return the paths of submodules in the index of a git directory. The index is parsed again after a change."""
    index = f"{path}/index"
    try:
        status = os.stat(index)
        key = status.st_ino, status.st_mtime_ns, status.st_size
        known, names = _INDEXES.get(index, (None, frozenset()))
        if known != key:
            names = gitlinks(Path(index).read_bytes(), _object_name(path))
            if len(_INDEXES) >= KEPT:
                _INDEXES.clear()
            _INDEXES[index] = key, names
        return names
    except (OSError, ValueError, IndexError, struct.error):
        return ()


def _object_name(path: str) -> int:
    text = _text(f"{_common(path)}/config").lower()
    return SHA256 if re.search(rb"^\s*objectformat\s*=\s*\"?sha256", text, re.MULTILINE) else SHA1


def _protected(
    path: str, *, trees: tuple[str, ...] = TREES, writable: tuple[str, ...] = (), nurseries: tuple[str, ...] = ()
) -> GitDirectory:
    return GitDirectory(
        path=path,
        writable=writable,
        names=NAMES,
        heads=HEADS,
        trees=(*STATES, *trees),
        nurseries=nurseries,
        object_name=_object_name(path),
    )


def _repository(path: str) -> Iterator[GitDirectory]:
    """Yield a git directory, then the git directories of its linked worktrees and submodules."""
    there = tuple(name for name in TREES if os.path.isdir(f"{path}/{name}"))
    # A missing directory can't be mounted, so the broker creates it and changes its files.
    missing = tuple(name for name in TREES if name not in there)
    writable = tuple(f"{path}/{name}" for name in there)
    yield _protected(path, trees=missing, writable=writable, nurseries=(LINKED,))
    for name in _listed(f"{path}/{LINKED}"):
        linked = f"{path}/{LINKED}/{name}"
        yield _protected(linked)
    yield from _modules(f"{path}/modules")


def _modules(path: str) -> Iterator[GitDirectory]:
    """Yield the git directories of submodules, nested ones included. Their names may contain slashes."""
    waiting, left = [path], MOST_MODULES
    while waiting and left:
        directory = waiting.pop()
        for name in _listed(directory):
            below = f"{directory}/{name}"
            if is_git_directory(below):
                left -= 1
                # Without mounts: a repository may have hundreds of submodules, and every process pays for each mount.
                yield _protected(below, nurseries=(LINKED,))
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
    own = _protected(target)
    if common == target:
        return _repository(target) if is_ours else [own]
    if any(is_below(common, each) for each in writes):
        return [*_repository(common), own]
    return [own, GitDirectory(path=common, names=SHARED_NAMES, heads=(), trees=TREES, object_name=SHA1)]


def _target(pointer: str) -> str:
    match = _POINTER.fullmatch(_text(pointer))
    return os.path.realpath(os.path.join(os.path.dirname(pointer), os.fsdecode(match[1]))) if match else ""


def _common(target: str) -> str:
    text = os.fsdecode(_text(f"{target}/commondir").rstrip(b"\n"))
    return os.path.realpath(os.path.join(target, text)) if text else target


def _names_in_return(target: str, workspace: str) -> bool:
    """Return True if a git directory outside of the workspace names this working tree, in either of git's two forms."""
    return f"{workspace}/.git" in _pointers_to(target)


def _pointers_to(path: str) -> list[str]:
    """Return the files `.git` that a git directory records as its own: of a linked worktree, or of a submodule."""
    if os.path.basename(os.path.dirname(path)) == LINKED:
        named = [_text(f"{path}/gitdir").rstrip(b"\n")]
    else:
        named = [each + b"/.git" for each in _WORKTREE.findall(_text(f"{path}/config"))]
    found = (os.path.realpath(os.path.join(path, os.fsdecode(each))) for each in named if each)
    return [pointer for pointer in found if os.path.isfile(pointer)]


def is_git_directory(path: str) -> bool:
    """Return True if git accepts the path as a git directory, by the same marks that git checks."""
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
