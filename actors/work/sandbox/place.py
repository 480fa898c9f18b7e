"""Structs for the sandbox rules of one kind of process, and for the needs of a single one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

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
