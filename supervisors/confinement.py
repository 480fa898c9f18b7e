"""What a process may not do although its user may: how `start_process` is told.

A `Confinement` belongs to one process. `begin` and `end` are called in threads, since they look at files. `begin` only
says what is to be done: the restrictions themselves are put on the process by the reaper that starts it (see
`guardian`), so the program that embeds Callboard is never restricted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec


class Guarded(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that is read-only for a process, but in which the broker changes what has one of these names.

    Attributes:
        directory: a path, the same for the process and for us.
        names: files in it; `*` at the beginning or the end of a name stands for any text.
        heads: files in it that are only replaced, by a rename and if the new one is a git HEAD, and never removed.
        trees: directories in it in which everything may be changed.
        nurseries: directories in it in which directories may be made, and everything be changed in those that were.
    """

    directory: bytes
    names: tuple[bytes, ...]
    heads: tuple[bytes, ...]
    trees: tuple[bytes, ...]
    nurseries: tuple[bytes, ...]


class Brokered(msgspec.Struct, frozen=True, kw_only=True):
    """System calls that the reaper performs for a process; see `syscall_broker`.

    Attributes:
        filter: a seccomp program that notifies of these calls.
        without: the one in its place where the kernel can't notify us: it refuses them, or what leads to them.
        places: paths, with whether the calls are performed on what is in them; the longest path decides.
        abstract: whether abstract Unix sockets can be connected to: those of its network namespace.
        guarded: read-only directories with exceptions.
        unchangeable: paths whose own metadata is not changed, whatever `places` says.
    """

    filter: bytes
    without: bytes
    places: tuple[tuple[bytes, bool], ...]
    abstract: bool
    guarded: tuple[Guarded, ...] = ()
    unchangeable: tuple[bytes, ...] = ()


class Restrictions(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel is to refuse a process, and all that it starts.

    Attributes:
        network: a descriptor of the network namespace that it is in; None for ours.
        gains_nothing: it gains no privileges by setuid programs (`no_new_privs`). The others need this.
        capabilities: numbers of those that it keeps, if we have them; None for all.
        ruleset: a descriptor of the Landlock ruleset that it is held to; None for none.
        filter: a seccomp program, 8 bytes for each instruction; empty for none.
        broker: the calls that are performed for it; None for none.
    """

    network: int | None = None
    gains_nothing: bool = False
    capabilities: tuple[int, ...] | None = None
    ruleset: int | None = None
    filter: bytes = b""
    broker: Brokered | None = None


NO_RESTRICTIONS = Restrictions()


class Confined(msgspec.Struct, frozen=True, kw_only=True):
    """How a process is started.

    Attributes:
        argv, env: what is executed in place of what was asked for, and with which environment.
        fds: descriptors that it inherits for that, under the same numbers.
        restrictions: what it may not do from its first instruction on.
        close: called when it has been started, or could not be: frees what the start alone needed.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    fds: Sequence[int] = ()
    restrictions: Restrictions = NO_RESTRICTIONS
    close: Callable[[], None] = lambda: None


class Confinement(Protocol):
    """See the module."""

    def begin(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Confined:
        """Return how this command is started. Blocks.

        Raises:
            OSError: it can't be: there is no such program, or the system refuses what the restrictions need.
            ProcessError: the same, in words.
        """

    def meaning(self, status: int) -> int:
        """Return the exit status of the program itself, as in `subprocess`: bubblewrap reports signal n as 128 + n."""

    def end(self) -> None:
        """Free what the process needed. It has ended, with all it left behind. Blocks."""
