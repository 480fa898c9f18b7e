"""Fork and exec in a thread, and wait for a death without taking its status away.

`wait_for_death` never reaps. As long as the leader of a session is a zombie, its pid can't go to another
process, so no signal to its group hits another; the leader is reaped last, when its session is proven empty.
That, and the choice of signals blocked in the child, is what trio's own `Process` does not offer.

Our children carry a mark in their environment, so that those who leave their session are found. `CALLBOARD_COOKIE`
holds tokens joined by colons, outermost first:

    <tokens of an outer Callboard>:<token of the root>:<token of the process>

All descendants of a child inherit it, in any session, until one clears its environment. Because it nests, an outer
Callboard finds the children of an inner one; because the last token is the process' own, the strays of one process
differ from its siblings'. The host never puts it into its own environment: it would hunt itself.
"""

from __future__ import annotations

import errno
import os
import secrets
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import trio

from ..protocol.kernel.errors import ProcessError
from .confinement import Confinement, apart
from .guardian import look

VARIABLE = "CALLBOARD_COOKIE"

AT_ONCE = 8
"""Forks (and looks at `/proc`) going on at the same time in one root."""

POLL = 0.01
"""Seconds between looks where the kernel has no pidfds or we have no descriptor left for one."""

WHY = {
    errno.ENOEXEC: "it is neither a program nor a script that begins with `#!`",
    errno.E2BIG: "its arguments and environment are too large for this system; pass large data by stdin or a file",
    errno.EMFILE: "this process has too many files open; raise `ulimit -n`, or run less at once",
    errno.ENFILE: "this machine has too many files open",
    errno.ENOMEM: "there is not enough memory",
    errno.EAGAIN: "this user has too many processes; raise `ulimit -u`, or run less at once",
    errno.ETXTBSY: "somebody is still writing to the file",
}
"""Why something could not be started, in words that say what to do."""


def new_token() -> str:
    """A token that no other process has."""
    return secrets.token_hex(8)


def child_environment(given: Mapping[str, str] | None, *tokens: str) -> dict[str, str]:
    """The environment of a child: `given`, or ours if None, with the cookie that nests `tokens` in our own."""
    environment = dict(os.environ if given is None else given)
    outer = os.environ.get(VARIABLE)
    environment[VARIABLE] = ":".join(filter(None, (outer, *tokens)))
    return environment


async def spawn(
    argv: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    limiter: trio.CapacityLimiter,
    block: Iterable[signal.Signals] = (),
    pass_fds: Sequence[int] = (),
    confinement: Confinement | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process as the leader of a session of its own.

    Can't be cancelled once it has begun: who calls it holds the process when it returns.

    Args:
        block: signals the process starts with blocked; inherited over exec, hence as good as ignored.
        pass_fds: our descriptors that it inherits under the same numbers, besides its standard three.
        confinement: what it may not do; None for nothing.

    Raises:
        ProcessError: it could not be started; the text says why.
    """

    def start(argv: Sequence[str], env: Mapping[str, str], pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, block)
        try:
            return subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def start_confined() -> subprocess.Popen[bytes]:
        if confinement is None:
            return start(argv, env, pass_fds)
        confined = confinement.begin(argv, env, None if cwd is None else os.fspath(cwd))

        def enter_and_start() -> subprocess.Popen[bytes]:
            confined.enter()
            return start(confined.argv, confined.env, [*pass_fds, *confined.fds])

        try:
            return apart(enter_and_start)
        finally:
            confined.close()

    try:
        return await trio.to_thread.run_sync(start_confined, limiter=limiter)
    except (OSError, ValueError) as error:
        raise refusal(error, argv[0], cwd) from error


async def wait_for_death(pid: int) -> None:
    """Wait until this process has ended; it may be another's child. Returns at once if there is none."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:
        await _poll_for_death(pid)
        return
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)


def is_dead(pid: int) -> bool:
    """Whether this process has ended, reaped or not."""
    try:
        seen = look(pid)
    except OSError:
        return not _exists(pid)  # too many files open to tell a dead one from a living
    return seen is None or seen.dead


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _poll_for_death(pid: int) -> None:
    while not is_dead(pid):  # noqa: ASYNC110 - who would set an event? The pidfd that we can't have
        await trio.sleep(POLL)


def refusal(error: OSError | ValueError, program: str, cwd: str | os.PathLike[str] | None = None) -> ProcessError:
    """The error of a failed start: why, and what to do."""
    return ProcessError(f"can't start {program!r}: {_reason(error, program, cwd)}")


def _reason(error: OSError | ValueError, program: str, cwd: str | os.PathLike[str] | None) -> str:
    if isinstance(error, ValueError):
        return f"{error} in its arguments or environment"
    number = error.errno or 0
    if cwd is not None and error.filename is not None and os.fspath(error.filename) == os.fspath(cwd):
        return f"its working directory {os.fspath(cwd)!r} can't be entered ({os.strerror(number)})"
    if number in (errno.ENOENT, errno.ENOTDIR):
        return _missing(program, cwd)
    if number == errno.EACCES:
        return "it may not be executed; check the path and `chmod +x` it"
    return WHY.get(number, os.strerror(number))


def _missing(program: str, cwd: str | os.PathLike[str] | None) -> str:
    if "/" not in program:
        return "there is no such program on the PATH"
    if Path(cwd or ".", program).exists():
        return "the interpreter that its first line (`#!`) names was not found"
    return "there is no such file"
