"""From a command line to a `Child`: guardian, cookie, pipes, fork and exec, in this order.

The guardian is there before anything is executed and knows the root's token, so that there is no moment at which a
child could outlive a host that is killed.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self

from ..protocol.kernel.errors import ProcessError
from .child import Child, ProcessStop
from .cookie import child_environment, new_token
from .guardian import Seen, look
from .pipes import Input, Output
from .spawn import refusal, spawn
from .tail import Tail

if TYPE_CHECKING:
    from .processes import Processes


async def fork(
    processes: Processes,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    stdin: Literal["null", "pipe"],
    stdout: Literal["null", "pipe"],
    stop: ProcessStop,
    tail: Tail,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a process. Not a checkpoint after the fork, so a cancelled caller still gets what it must end.

    Raises:
        ProcessError: it could not be started.
    """
    if not argv:
        raise ProcessError("can't start a process: its command line is empty")
    await processes.link.ensure()
    token = new_token()
    with _Pipes(argv[0], stdin, stdout) as pipes:
        popen = await spawn(
            argv,
            stdin=pipes.stdin,
            stdout=pipes.stdout,
            stderr=pipes.stderr,
            env=child_environment(env, processes.token, token),
            cwd=cwd,
            limiter=processes.limiter,
            pass_fds=pass_fds,
        )
        leader = _seen(popen, argv[0])
        child = Child(processes, popen, leader, token, stop, pipes.streams(), tail)
        processes.live[child.pid] = child
        processes.prime()
    return child


def _seen(popen: subprocess.Popen[bytes], program: str) -> Seen:
    try:
        leader = look(popen.pid)
        if leader is not None:
            return leader
        error = OSError(errno.ENOSYS, "no /proc")
    except OSError as full:
        error = full
    popen.kill()
    popen.wait()
    raise refusal(error, program) from error


class _Pipes:
    """The pipes of a child that is about to be forked; what was not handed over is closed at the end of the block."""

    def __init__(self, program: str, stdin: str, stdout: str) -> None:
        self._open: list[int] = []
        self._ours: list[int | None] = [None, None, None]
        self.stdin = self.stdout = self.stderr = subprocess.DEVNULL
        try:
            if stdin == "pipe":
                self.stdin, self._ours[0] = self._pipe()
            if stdout == "pipe":
                self._ours[1], self.stdout = self._pipe()
            self._ours[2], self.stderr = self._pipe()
        except OSError as error:
            self.__exit__()
            raise refusal(error, program) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._open:
            os.close(fd)

    def streams(self) -> tuple[Input | None, Output | None, Output]:
        """Our ends, which from now on belong to the caller."""
        stdin, stdout, stderr = self._ours
        assert stderr is not None
        self._open = [fd for fd in self._open if fd not in self._ours]
        return (
            None if stdin is None else Input(stdin),
            None if stdout is None else Output(stdout),
            Output(stderr),
        )

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._open += ends
        return ends
