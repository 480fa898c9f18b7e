"""What a process may not do although its user may: how `start_process` is told.

A `Confinement` belongs to one process. `begin` and what it returns are used in threads, since they look at files; the
restrictions that a process inherits from the thread which starts it (Linux keeps capabilities, Landlock domains and
seccomp filters per thread) are put on a thread of their own, `enter`, which starts that one process and ends. So no
helper program stands between us and the process, and ours is never restricted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Confined(msgspec.Struct, frozen=True, kw_only=True):
    """How a process is started.

    Attributes:
        argv, env: what is executed in place of what was asked for, and with which environment.
        fds: descriptors that it inherits for that, under the same numbers.
        enter: puts restrictions on the thread that is to start it, for good.
        close: called when it has been started, or could not be: frees what the start alone needed.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    fds: Sequence[int] = ()
    enter: Callable[[], None] = lambda: None
    close: Callable[[], None] = lambda: None


class Confinement(Protocol):
    """See the module."""

    def begin(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Confined:
        """How this command is started. Blocks.

        Raises:
            OSError: it can't be: there is no such program, or the system refuses what the restrictions need.
            ProcessError: the same, in words.
        """

    def meaning(self, status: int) -> int:
        """What its exit status means, as in `subprocess`: a program between may turn the signal n into 128 + n."""

    def end(self) -> None:
        """The process is over, with all it left behind. Blocks."""


def apart(work: Callable[[], T]) -> T:
    """Do this in a thread that is used for nothing else before and after."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001 - handed to who waits below
            failed.append(error)

    thread = threading.Thread(target=run, name="confined start")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
