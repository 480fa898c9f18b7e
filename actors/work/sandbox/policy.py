"""What one process may do, as plain facts: what it may write, what is hidden from it, whether it has a network.

Paths are absolute and real (no links), so that the backends need not resolve any. Of two that lie in one
another the deeper one counts: a directory that may be written in one that is hidden is there, and the rest is not.
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


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        profile: `read-only`, `workspace` or `open`; the last has no bounds for files and the network, only for what
            it may do with the kernel and with other processes.
        writes: directories and files that it may change.
        shows: what it can read wherever it lies.
        fixed: what it can read, but not change, in what it may write.
        git: directories that it can read, and of which it can change some.
        kept: the same, and every backend keeps it.
        hides: what it can't read.
        env_files: the same, for files among those that it may write.
        temporary: the directory that is its `/tmp`; None for one that ends with it.
        network: whether it reaches one.
        namespace: the network that it is put into instead, out of which a proxy leads.
    """

    profile: Profile
    writes: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    git: tuple[GitDirectory, ...] = ()
    kept: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    temporary: str | None = None
    network: bool = False
    namespace: Namespace | None = None

    @property
    def bounded(self) -> bool:
        """Whether files and network are bounded at all."""
        return self.profile != "open"


def real(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """These paths without links, each once, and only those that are there."""
    found = (os.path.realpath(path) for path in paths)
    return tuple(dict.fromkeys(path for path in found if os.path.exists(path)))


def is_below(path: str, directory: str) -> bool:
    """Whether a path is this directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
