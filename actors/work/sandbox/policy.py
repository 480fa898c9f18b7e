"""Structs of the sandbox: the rules for processes of one kind, and the policy of one process.

`SandboxPlace` has the user's rules; `launch` makes the policy of a process from them. A `Policy` has the writable and
hidden paths, and the network. Its paths are absolute and resolved, so that backends need not follow links. Of two
nested paths the deeper one decides: a writable directory inside a hidden one is accessible, and the rest of the hidden
one is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ....protocol.sandbox import Profile, SandboxRules

WHOLE = ("/", "/dev", "/proc", "/sys", "/run")
"""Directories that never become workspaces: a server started there must not make the whole machine writable."""

PROGRAMS = (".js", ".mjs", ".cjs", ".ts", ".py", ".sh", ".rb", ".jar", ".pyz")
"""Suffixes of code: a server's entry names its own program, which the server need not change."""

OF_KERNEL = ("/proc", "/sys")
"""Trees of kernel settings: no directory below them becomes a workspace either."""


class SandboxPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for processes of one kind. Processes with equal rules have the same permissions.

    Attributes:
        rules: the user's rules.
        here: working directory.
        config_dir, home: directories of Callboard's configuration and of the user's files.
        network: `on`, `off`, or the hosts that need no question.
        caches: directory for the caches of package managers; "" for none.
        named: absolute paths that a server's entry names, which it may use; not resolved (see `named_data`).
    """

    rules: SandboxRules
    here: str
    config_dir: str
    home: str
    network: str | tuple[str, ...] = "off"
    caches: str = ""
    named: tuple[str, ...] = ()

    @property
    def profile(self) -> Profile:
        """Profile of the rules."""
        assert self.rules.profile is not None  # `rules_of` sets it
        return self.rules.profile

    def seen(self, path: str) -> str:
        """Return a path of the rules as an absolute one: `~` is the user's home, others are relative to `here`."""
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        return os.path.join(self.here, path)


class Beyond(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions that the user grants to one process in addition to its sandbox.

    Attributes:
        writes: directories and files that it may write.
        network: True for the whole network.
    """

    writes: tuple[str, ...] = ()
    network: bool = False


WITHIN = Beyond()


class Nature(msgspec.Struct, frozen=True, kw_only=True):
    """Name and needs of one process.

    Attributes:
        name: name of its tool, script or server.
        writes, shows: paths that it writes and reads.
        file: its program's text, or the directory of its programs, which may name variables that it needs.
        beyond: grants of the user.
    """

    name: str
    writes: Sequence[str | os.PathLike[str]] = ()
    shows: Sequence[str | os.PathLike[str]] = ()
    file: Path | None = None
    beyond: Beyond = WITHIN


RETAINED_CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3}
"""Names and numbers of the capabilities that a sandboxed process of root retains: those for files of other users.

With the rest it could mount, load modules, signal outside processes, act as another user, or change the network. It
could also change a setuid file without clearing that bit (FSETID)."""


class EnvFile(msgspec.Struct, frozen=True):
    """File of variables found in a workspace.

    Attributes:
        path: the file, without links.
        directory: device and inode of the directory that it was found in. If another directory has that path now, a
            process has moved the file.
    """

    path: str
    directory: tuple[int, int]


class GitDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """Git directory that is read-only for a process, with these exceptions.

    Attributes:
        path: the directory, without links.
        writable: directories in it that are mounted writable.
        names: files at its top that the broker changes; `*` at the beginning or the end matches any text.
        heads: files at its top that the broker replaces, but does not remove.
        trees: directories in it in which the broker changes everything.
        nurseries: directories in it in which the broker creates new directories, and changes those.
        object_name: length of an object name in bytes.
    """

    path: str
    writable: tuple[str, ...] = ()
    names: tuple[str, ...]
    heads: tuple[str, ...]
    trees: tuple[str, ...]
    nurseries: tuple[str, ...] = ()
    object_name: int


class NetworkNamespace(Protocol):
    """Network namespace that processes can be started in: `egress.Namespace`."""

    def command(self) -> list[str]:
        """Return the command prefix that starts a program in the namespace; empty as root."""

    def network_to_enter(self) -> int | None:
        """Return the descriptor of the network namespace if a process can enter it directly, as only root can; else
        None."""


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
    namespace: NetworkNamespace | None = None

    @property
    def bounded(self) -> bool:
        """True if files and network are restricted."""
        return self.profile != "open"


def env_paths(policy: Policy) -> tuple[str, ...]:
    """Return the paths of a policy's files of variables."""
    return tuple(each.path for each in policy.env_files)


def real(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the existing paths among these, with symbolic links resolved and without duplicates."""
    # One `stat` for a missing path, and most of the names that a policy lists are missing. `realpath` costs a `lstat`
    # for each part of the path: 75 names took half of the time in which a process of the sandbox was prepared.
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))


def is_below(path: str, directory: str) -> bool:
    """Return True if a path is this directory or inside it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
