"""The request that a reaper is sent to start a process, and the words for a start that failed."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import trio

from ..protocol.kernel.errors import ProcessError
from . import guardian
from .confinement import NO_RESTRICTIONS, Confined, Confinement, Restrictions
from .guardian_link import START_WITHIN, ReaperLink, StartRefused

WHY = {
    errno.ENOEXEC: "it is neither a program nor a script that begins with `#!`",
    errno.E2BIG: "its arguments and environment are too large for this system; pass large data by stdin or a file",
    errno.EMFILE: "this process has too many files open; raise `ulimit -n`, or run less at once",
    errno.ENFILE: "this machine has too many files open",
    errno.ENOMEM: "there is not enough memory",
    errno.EAGAIN: "this user has too many processes; raise `ulimit -u`, or run less at once",
    errno.ESRCH: "its reaper, which starts it for us, was killed in that moment",
    errno.ETIMEDOUT: f"it did not begin within {START_WITHIN:g} s",
    errno.ETXTBSY: "somebody is still writing to the file",
}
"""Why something could not be started, in words that say what to do."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be started.

    Attributes:
        argv: program and arguments.
        env: its whole environment; None for ours.
        cwd: its directory; None for ours.
        pass_fds: our descriptors that it inherits under the same numbers, besides its standard three.
        confinement: what it may not do; None for nothing.
    """

    argv: Sequence[str]
    env: Mapping[str, str] | None
    cwd: str | os.PathLike[str] | None
    pass_fds: Sequence[int] = ()
    confinement: Confinement | None = None


async def spawn(
    reaper: ReaperLink, command: Command, streams: tuple[int, int, int], *, limiter: trio.CapacityLimiter
) -> int:
    """Have a reaper start a process, as the leader of a session of its own, and return its pid.

    Can't be cancelled once the reaper has been asked: who calls it holds the process when it returns.

    Args:
        streams: descriptors of its stdin, stdout, and stderr; they stay the caller's to close.
        limiter: bounds the threads that prepare confinements.

    Raises:
        ProcessError: it could not be started; the text says why.
    """
    argv, env, cwd = command.argv, dict(os.environ if command.env is None else command.env), command.cwd
    confined = Confined(argv=argv, env=env)
    try:
        if command.confinement is not None:
            begin, where = command.confinement.begin, None if cwd is None else os.fspath(cwd)
            confined = await trio.to_thread.run_sync(begin, argv, env, where, limiter=limiter)
        try:
            confined = msgspec.structs.replace(confined, fds=[*command.pass_fds, *confined.fds])
            return await _start(reaper, confined, cwd, streams)
        finally:
            confined.close()
    except (OSError, ValueError) as error:
        raise refusal(error, argv[0], cwd) from error


async def _start(
    reaper: ReaperLink, how: Confined, cwd: str | os.PathLike[str] | None, streams: tuple[int, int, int]
) -> int:
    fds = [*streams, *how.fds]
    limits = None if how.restrictions == NO_RESTRICTIONS else _numbered(how.restrictions, fds)
    here = -1
    if cwd is None:
        here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # its name may be gone
        fds.append(here)
    request: guardian.Request = {
        "argv": [os.fsencode(part) for part in how.argv],
        "env": {os.fsencode(name): os.fsencode(value) for name, value in how.env.items()},
        "cwd": None if cwd is None else _absolute(cwd),
        "targets": list(how.fds),
        "restrictions": limits,
    }
    try:
        with trio.CancelScope(shield=True):  # for at most `START_WITHIN`: a process that nobody holds would be left
            pid = await reaper.start(request, fds)
    except StartRefused as refused:
        if refused.stage == "restrictions":
            why = f"the system refuses what its sandbox needs ({os.strerror(refused.number)})"
            raise ProcessError(f"can't start {how.argv[0]!r}: {why}") from refused
        place = cwd if refused.stage == "cwd" else how.argv[0]
        raise OSError(refused.number, os.strerror(refused.number), place) from refused
    finally:
        if here >= 0:
            os.close(here)
    return pid


def _absolute(path: str | os.PathLike[str]) -> bytes:
    return os.fsencode(Path(path).absolute())


def _numbered(restrictions: Restrictions, fds: list[int]) -> guardian.Restrictions:
    """Return the restrictions with positions among the descriptors in place of the descriptors, which are added."""

    def position(fd: int | None) -> int | None:
        if fd is None:
            return None
        fds.append(fd)
        return len(fds) - 1

    broker = restrictions.broker
    return {
        "network": position(restrictions.network),
        "gains_nothing": restrictions.gains_nothing,
        "capabilities": restrictions.capabilities,
        "ruleset": position(restrictions.ruleset),
        "filter": restrictions.filter,
        "broker": None if broker is None else msgspec.to_builtins(broker, builtin_types=(bytes,)),
    }


def refusal(error: OSError | ValueError, program: str, cwd: str | os.PathLike[str] | None = None) -> ProcessError:
    """Return the error of a failed start, which says why and what to do."""
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
