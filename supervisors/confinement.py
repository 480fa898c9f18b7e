"""Interface between `start_process` and a sandbox: the restrictions of one process.

A `Confinement` serves one process. `begin` runs in a thread, since it accesses files, and so does `end` if it does.
`begin` only describes the restrictions: the reaper that starts the process applies them (see `guardian`), so the
program that embeds Callboard is never restricted itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec


class Guarded(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that is read-only for a process, with exceptions that the broker changes on its behalf.

    Attributes:
        directory: its path, the same inside and outside of the sandbox.
        names: files in it that may be changed; `*` at the beginning or the end of a name matches any text.
        heads: files in it that may only be replaced by renaming a valid git HEAD over them, and never removed.
        trees: directories in it in which everything may be changed.
        nurseries: directories in it in which new directories may be created, and everything in those be changed.
        object_name: length in bytes of a git object name, with which the broker checks a new `index`.
    """

    directory: bytes
    names: tuple[bytes, ...]
    heads: tuple[bytes, ...]
    trees: tuple[bytes, ...]
    nurseries: tuple[bytes, ...]
    object_name: int


class Brokered(msgspec.Struct, frozen=True, kw_only=True):
    """System calls that the reaper executes for a process; see `syscall_broker`.

    Attributes:
        filter: a seccomp program that notifies the broker of these calls.
        without: a seccomp program for kernels without notifications: it refuses the calls, or calls that lead to them.
        places: paths, each with True if the calls are executed for files below it; the longest path decides.
        abstract: True if abstract Unix sockets of its network namespace can be connected to.
        guarded: read-only directories with exceptions.
        unchangeable: paths whose own metadata is never changed, whatever `places` says.
    """

    filter: bytes
    without: bytes
    places: tuple[tuple[bytes, bool], ...]
    abstract: bool
    guarded: tuple[Guarded, ...] = ()
    unchangeable: tuple[bytes, ...] = ()


class Restrictions(msgspec.Struct, frozen=True, kw_only=True):
    """Restrictions that the kernel enforces on a process and its descendants.

    Attributes:
        network: descriptor of its network namespace; None for this program's.
        gains_nothing: True if setuid programs give it no privileges (`no_new_privs`). The following ones need that.
        capabilities: numbers of the capabilities that it keeps; None for all.
        ruleset: descriptor of its Landlock ruleset; None for none.
        filter: a seccomp program, 8 bytes per instruction; empty for none.
        broker: the calls that the reaper executes for it; None for none.
    """

    network: int | None = None
    gains_nothing: bool = False
    capabilities: tuple[int, ...] | None = None
    ruleset: int | None = None
    filter: bytes = b""
    broker: Brokered | None = None


NO_RESTRICTIONS = Restrictions()


class Confined(msgspec.Struct, frozen=True, kw_only=True):
    """A start command, changed for the sandbox.

    Attributes:
        argv, env: program, arguments and environment that replace the requested ones.
        fds: descriptors that the process inherits for that, under the same numbers.
        restrictions: apply to the process from its first instruction on.
        close: frees what only the start needed; called once it has succeeded or failed.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    fds: Sequence[int] = ()
    restrictions: Restrictions = NO_RESTRICTIONS
    close: Callable[[], None] = lambda: None


class Confinement(Protocol):
    """The sandbox of one process."""

    def begin(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Confined:
        """Return the command to start in place of this one, and its restrictions. Blocks.

        Raises:
            OSError: the program does not exist, or the system lacks features that the restrictions need.
            ProcessError: the same, with a text for the user.
        """

    def meaning(self, status: int) -> int:
        """Return the program's own exit status as in `subprocess`; bubblewrap reports signal n as 128 + n."""

    def end(self) -> None:
        """Free the resources of the sandbox. The process and its descendants have ended. Blocks if `has_files`."""

    @property
    def has_files(self) -> bool:
        """True if `end` removes files."""
