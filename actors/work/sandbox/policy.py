"""Policy for one process: writable and hidden paths, and the network.

Paths are absolute and resolved, so that backends need not follow links. Of two nested paths the deeper one decides: a
writable directory inside a hidden one is accessible, and the rest of the hidden one is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from ....protocol.sandbox import Profile

if TYPE_CHECKING:
    from .git_directories import GitDirectory
    from .namespace import Namespace


class EnvFile(msgspec.Struct, frozen=True):
    """File of variables found in a workspace.

    Attributes:
        path: the file, without links.
        directory: device and inode of the directory that it was found in. If another directory has that path now, a
            process has moved the file.
    """

    path: str
    directory: tuple[int, int]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions of one process.

    Attributes:
        profile: `read-only`, `workspace` or `open`. `open` bounds neither files nor the network, only access to the
            kernel and to other processes.
        writes: writable directories and files.
        shows: readable paths, also inside hidden ones.
        fixed: read-only paths inside writable ones.
        git: git directories, read-only with exceptions.
        kept: read-only paths inside writable ones that every backend protects.
        hides: unreadable paths.
        env_files: unreadable files inside writable directories.
        temporary: the directory that is its `/tmp`; None for one that is removed with the process.
        network: True if it has the network of the machine.
        namespace: network namespace that it enters instead, with a proxy as the only way out.
    """

    profile: Profile
    writes: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    git: tuple[GitDirectory, ...] = ()
    kept: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()
    env_files: tuple[EnvFile, ...] = ()
    temporary: str | None = None
    network: bool = False
    namespace: Namespace | None = None

    @property
    def bounded(self) -> bool:
        """True if files and network are restricted."""
        return self.profile != "open"


def env_paths(policy: Policy) -> tuple[str, ...]:
    """Return the paths of a policy's files of variables."""
    return tuple(each.path for each in policy.env_files)


def real(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the existing paths among these, resolved and without duplicates."""
    # One `stat` for a missing path, and most of the names that a policy lists are missing. `realpath` costs a `lstat`
    # for each part of the path: 75 names took half of the time in which a process of the sandbox was prepared.
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))


def is_below(path: str, directory: str) -> bool:
    """Return True if a path is this directory or inside it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
