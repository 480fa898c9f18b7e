"""How processes of one kind are held, and what one of them needs by its nature."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ....protocol.sandbox import Profile, SandboxRules

WHOLE = ("/", "/dev", "/proc", "/sys", "/run")
"""Directories that are not workspaces: to start a server there does not make all of the machine writable."""

PROGRAMS = (".js", ".mjs", ".cjs", ".ts", ".py", ".sh", ".rb", ".jar", ".pyz")
"""Names of code: what an entry of a server names of its own, which it need not change."""

OF_KERNEL = ("/proc", "/sys")
"""No directory below these is a workspace either: their files are settings of the machine."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """How processes of one kind are held. Two that are equal are held alike.

    Attributes:
        rules: what the user says of them.
        here: where they work.
        config_dir, home: where our configuration and the user's files are.
        network: `on`, `off`, or the hosts that they reach without asking.
        caches: a directory for what package managers keep; "" for none.
        named: absolute paths that a server's entry names, which are meant for it; not resolved (see `named_data`).
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
        """That of its rules."""
        assert self.rules.profile is not None  # `rules_of` has seen to it
        return self.rules.profile


class Beyond(msgspec.Struct, frozen=True, kw_only=True):
    """What a person lets one process do beyond its sandbox.

    Attributes:
        writes: directories and files that it may write.
        network: it has all of the network.
    """

    writes: tuple[str, ...] = ()
    network: bool = False


WITHIN = Beyond()


class Nature(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is, and needs by that.

    Attributes:
        name: of its tool, script or server.
        writes, shows: what it writes and reads.
        file: its program's text, or the directory of its programs, which may name variables that it has.
        beyond: what a person lets it do.
    """

    name: str
    writes: Sequence[str | os.PathLike[str]] = ()
    shows: Sequence[str | os.PathLike[str]] = ()
    file: Path | None = None
    beyond: Beyond = WITHIN
