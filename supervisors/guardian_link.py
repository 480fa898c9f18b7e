"""The host's side of the launcher: requests to start processes, links to reapers, and the link to the guardian.

`guardian` says what these are: a guardian process per root, which forks a reaper process for each subprocess. This
module holds

    spawn          turns a `StartCommand` into a start request, and a failed start into a `ProcessError`
    ReaperLink     the socket to one reaper
    GuardianLink   the socket to the guardian, which it keeps alive
    Processes      all of these for one root

**Lost helpers.** A guardian that was killed is replaced at once; one that does not answer within `ANSWER_WITHIN` is
killed and replaced. After more than `LIVES` deaths in `PERIOD` seconds it is given up with a warning, and no process is
started until a new guardian lives. Reapers need no guardian and continue. A reaper that does not answer is killed; the
guardian then ends its descendants.

Invariant: a reaper that was asked to start a process is never asked again after a lost answer, since the process may
have been started.
"""

from __future__ import annotations

import errno
import marshal
import os
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

import msgspec
import trio

from ..protocol.kernel.errors import ProcessError
from ..protocol.kernel.events import EventData, Warned
from . import guardian
from .confinement import NO_RESTRICTIONS, Confined, Confinement, Restrictions

if TYPE_CHECKING:
    from .guardian import StartRequest

T = TypeVar("T")

ANSWER_WITHIN = 10.0
"""Seconds for an answer of the guardian or of a reaper, which takes a millisecond; one that hangs is replaced."""

START_WITHIN = 30.0
"""Seconds for a guardian or a process to be started, which takes 30 ms and 1 ms."""

CONTINUED_AFTER = 1.0
"""Seconds without an answer after which a helper counts as stopped (SIGSTOP) and is sent SIGCONT."""

DESCENDANTS_POLL = 0.02
"""Seconds between two queries whether the descendants of a dead reaper have ended."""

LIVES = 5
"""Guardians that may be started within `PERIOD` seconds."""

PERIOD = 30.0

PREPARING = 8
"""Threads per root that prepare confinements and fork guardians at the same time."""

IDLE = 4
"""Idle reapers that are kept for the next processes. Each has 1 MB of its own; forking one costs 1 ms."""

WHY = {
    errno.ENOEXEC: "it is neither a program nor a script that begins with `#!`",
    errno.E2BIG: "its arguments and environment are too large for this system; pass large data by stdin or a file",
    errno.EMFILE: "this process has too many files open; raise `ulimit -n`, or run less at once",
    errno.ENFILE: "this machine has too many files open",
    errno.ENOMEM: "there is not enough memory",
    errno.EAGAIN: "this user has too many processes; raise `ulimit -u`, or run less at once",
    errno.ESRCH: "the helper process (reaper) that starts it was killed",
    errno.ETIMEDOUT: f"it did not begin within {START_WITHIN:g} s",
    errno.ETXTBSY: "another process has the file open for writing",
}
"""Reasons for a failed start, as texts that say what to do."""

SCRIPT = Path(guardian.__file__)
KILLED = -int(signal.SIGKILL)
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGTSTP)
_NEEDED = ("PATH", "LD_LIBRARY_PATH")


class StartRefused(Exception):
    """The operating system refused to start a process.

    Attributes:
        number: its `errno`.
        stage: the step that was refused, see `guardian.SpawnRefused`.
    """

    def __init__(self, number: int, stage: str) -> None:
        super().__init__(number, stage)
        self.number = number
        self.stage = stage


class ReaperLost(Exception):
    """The reaper was killed before it started a process."""


# --- start requests -------------------------------------------------------------------------------------------


class StartCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A process that is to be started.

    Attributes:
        argv: program and arguments.
        env: its whole environment; None for a copy of this program's.
        cwd: its working directory; None for this program's.
        pass_fds: descriptors of this program that it inherits under the same numbers, besides its standard three.
        confinement: its sandbox; None for none.
    """

    argv: Sequence[str]
    env: Mapping[str, str] | None
    cwd: str | os.PathLike[str] | None
    pass_fds: Sequence[int] = ()
    confinement: Confinement | None = None


async def spawn(
    reaper: ReaperLink, command: StartCommand, streams: tuple[int, int, int], *, limiter: trio.CapacityLimiter
) -> int:
    """Start a process by a reaper, as the leader of a session of its own, and return its pid.

    Once the reaper has been asked, the call can't be cancelled: it returns the pid of every process that was started.

    Args:
        streams: descriptors of its stdin, stdout, and stderr; the caller closes them.
        limiter: bounds the threads that prepare confinements.

    Raises:
        ProcessError: it could not be started; the text says why.
        ReaperLost: the reaper was killed before it was asked. Another reaper may start the process.
    """
    argv, env, cwd = command.argv, dict(os.environ if command.env is None else command.env), command.cwd
    confined = Confined(argv=argv, env=env)
    try:
        if command.confinement is not None:
            begin, directory = command.confinement.begin, None if cwd is None else os.fspath(cwd)
            confined = await trio.to_thread.run_sync(begin, argv, env, directory, limiter=limiter)
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
    limits = None if how.restrictions == NO_RESTRICTIONS else _with_fd_positions(how.restrictions, fds)
    current_dir = -1
    if cwd is None:
        current_dir = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # its path may have been removed
        fds.append(current_dir)
    request: guardian.StartRequest = {
        "argv": [os.fsencode(part) for part in how.argv],
        "env": {os.fsencode(name): os.fsencode(value) for name, value in how.env.items()},
        "cwd": None if cwd is None else _absolute(cwd),
        "targets": list(how.fds),
        "restrictions": limits,
    }
    try:
        # Shielded, for at most `START_WITHIN`: a cancelled caller would not learn the pid of the process.
        with trio.CancelScope(shield=True):
            pid = await reaper.start(request, fds)
    except StartRefused as refused:
        if refused.stage == "restrictions":
            why = f"the system refuses what its sandbox needs ({os.strerror(refused.number)})"
            raise ProcessError(f"can't start {how.argv[0]!r}: {why}") from refused
        path = cwd if refused.stage == "cwd" else how.argv[0]
        raise OSError(refused.number, os.strerror(refused.number), path) from refused
    finally:
        if current_dir >= 0:
            os.close(current_dir)
    return pid


def _absolute(path: str | os.PathLike[str]) -> bytes:
    return os.fsencode(Path(path).absolute())


def _with_fd_positions(restrictions: Restrictions, fds: list[int]) -> guardian.Restrictions:
    """Append the descriptors of the restrictions to `fds`; return the restrictions with positions in that list."""

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


# --- reapers ----------------------------------------------------------------------------------------------------


@final
class ReaperLink:
    """The host's end of one reaper, which runs one process at a time.

    Attributes:
        pid: of the reaper.
        exited: set when its process has ended; then `status` is known, as in `subprocess`.
        empty: set while neither the process nor a descendant lives; set in a new reaper.
        swept: number of descendants that the reaper has ended; known when `empty` is set.
        crowd: set when the process has started many others instead of ending; they are stopped (SIGSTOP).
        lost: True if the reaper is dead.
    """

    exited: trio.Event
    empty: trio.Event
    crowd: trio.Event

    def __init__(
        self, pid: int, link: trio.socket.SocketType, wait_descendants: Callable[[int], Awaitable[None]]
    ) -> None:
        self.pid = pid
        self.lost: bool = False
        self._link = link
        self._wait_descendants = wait_descendants
        self._unsent: deque[bytes] = deque()
        self._answers: deque[_Answer] = deque()
        self._new()
        self.empty.set()

    def _new(self) -> None:
        self.exited, self.empty, self.crowd = trio.Event(), trio.Event(), trio.Event()
        self.status: int | None = None
        self.swept: int = 0

    async def start(self, request: StartRequest, fds: Sequence[int]) -> int:
        """Start a process and return its pid. The caller shields this.

        Raises:
            StartRefused: the operating system refused it.
            ValueError: a part of the request can't be passed to the operating system.
            ReaperLost: the reaper was killed before.
        """
        self._new()
        answer = self._expect()
        packet, in_file = _packed(("start", request)), -1
        try:
            if len(packet) > guardian.LARGEST:  # a packet has a size limit, so the request goes into a memory file
                in_file = _memory_file(_packed(request))
                packet, fds = _packed(("start", None)), [in_file, *fds]
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))
            await self._link.sendmsg([packet], [rights])
        except (OSError, trio.ClosedResourceError) as error:
            if answer in self._answers:
                self._answers.remove(answer)
            if isinstance(error, OSError) and error.errno in (errno.ETOOMANYREFS, errno.EMFILE, errno.ENOMEM):
                self.empty.set()
                raise StartRefused(errno.EMFILE, "start") from error
            if isinstance(error, OSError) and error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.EBADF):
                self.empty.set()
                raise StartRefused(error.errno or 0, "start") from error  # too many descriptors, for example
            raise ReaperLost from error
        finally:
            if in_file >= 0:
                os.close(in_file)
        try:
            message = await self._await(answer, START_WITHIN)
        except ReaperLost:  # the process may have been started, so it must not be tried again
            raise StartRefused(errno.ESRCH if self.lost else errno.ETIMEDOUT, "start") from None
        if message[0] == "started":
            return int(message[1])
        self.exited.set()
        self.empty.set()
        if message[0] == "invalid":
            raise ValueError(message[1])
        raise StartRefused(message[1], message[2])

    def order(self, *order: object) -> None:
        """Send an order that has no answer (see `guardian`). Ignored if the reaper is dead."""
        packet = _packed(order)
        if not self._unsent:
            try:
                self._socket_send(packet)
                return
            except BlockingIOError:
                pass  # the socket is full: the reaper is stopped and reads nothing
            except OSError:
                return
        self._unsent.append(packet)
        self._continue()

    async def members(self) -> list[int]:
        """Return the pids of its process and of the descendants that live; empty if the reaper is dead."""
        if self.lost or self.empty.is_set():
            return []
        answer = self._expect()
        self.order("members")
        try:
            _, pids = await self._await(answer, ANSWER_WITHIN)
        except ReaperLost:
            return []
        return list(pids)

    async def read(self) -> None:
        """Read the reaper's messages until it is dead and its descendants have ended."""
        try:
            while packet := await self._link.recv(guardian.LARGEST):
                self._note(marshal.loads(packet))  # noqa: S302 - from our own child process
                while self._unsent and not self.lost:
                    self._socket_send(self._unsent[0])
                    self._unsent.popleft()
        except (OSError, trio.ClosedResourceError):
            pass
        self.lost = True
        while self._answers:
            self._answers.popleft().over.set()
        if not self.empty.is_set():
            await self._wait_descendants(self.pid)
            self._note(("exited", KILLED, False))
            self._note(("empty", self.swept))

    def _note(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("exited", status, is_empty):
                if not self.exited.is_set():
                    self.status = status
                    self.exited.set()
                if is_empty:
                    self.empty.set()
            case ("empty", swept):
                self.swept = swept
                self.empty.set()
            case ("crowd", _):
                self.crowd.set()
            case _:
                if self._answers:
                    answer = self._answers.popleft()
                    answer.message = message
                    answer.over.set()

    def _expect(self) -> _Answer:
        """Return the slot for the answer to the next order. Answers arrive in the order of the orders."""
        answer = _Answer()
        self._answers.append(answer)
        return answer

    async def _await(self, answer: _Answer, within: float) -> tuple[Any, ...]:
        """Wait for an answer. A reaper that does not send it in time is killed; the guardian ends its descendants.

        Raises:
            ReaperLost: the reaper is dead.
        """
        if not self.lost and not await _in_time(answer.arrived, self.pid, within):
            _signal(self.pid, signal.SIGKILL)
        if answer.message is None:
            raise ReaperLost
        return answer.message

    def _continue(self) -> None:
        # Something may have stopped the reaper (SIGSTOP).
        if not self.lost:
            _signal(self.pid, signal.SIGCONT)

    def _socket_send(self, packet: bytes) -> None:
        os.write(self._link.fileno(), packet)

    def close(self) -> None:
        """Close the socket: the reaper ends its descendants, then itself. No effect a second time."""
        self.lost = True
        self._link.close()


async def _in_time(wait: Callable[[], Awaitable[T]], pid: int, within: float) -> T | None:
    """Wait for a message of a helper process, and send it SIGCONT in case it was stopped.

    `within` is measured by the real clock, since the helper does not run on a test's `MockClock`.

    Returns:
        None if nothing came within this time.
    """
    began = time.monotonic()
    while (waited := time.monotonic() - began) < within:
        with trio.move_on_after(CONTINUED_AFTER):
            return await wait()
        if waited >= CONTINUED_AFTER:
            _signal(pid, signal.SIGCONT)
    return None


class _Answer:
    """Slot for an answer. `over` is set with `message`, or without one when the reaper is dead."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.message: tuple[Any, ...] | None = None

    async def arrived(self) -> bool:
        await self.over.wait()
        return True


# --- the guardian -----------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class GuardianLink:
    """Keeps one guardian process alive for one root.

    Attributes:
        start_task: runs a task that may be cancelled when the root stops.
        warn: called with `(code, message)` for a warning.
        limiter: bounds the threads that fork.
    """

    start_task: Callable[[Callable[[], Awaitable[None]]], None]
    warn: Callable[[str, str], None]
    limiter: trio.CapacityLimiter
    _lock: trio.Lock = field(default_factory=trio.Lock)
    _births: list[float] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _socket: trio.socket.SocketType | None = None
    _watched: bool = False
    _leaving: bool = False

    @property
    def pid(self) -> int | None:
        """Pid of the guardian; None if none lives."""
        return self._process.pid if self._process else None

    async def new_reaper(self) -> ReaperLink:
        """Make the guardian fork a reaper.

        Raises:
            ProcessError: there is no guardian, and none could be started.
            OSError: the limit of processes or of descriptors is reached.
        """
        for _ in range(LIVES + 1):
            # A new pair for each attempt: a guardian that was killed may have passed the other end to a reaper.
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                with theirs:
                    answer = await self._ask(b"reaper", theirs.fileno())
                if answer is not None and int(answer) > 0:
                    reaper = ReaperLink(int(answer), trio.socket.from_stdlib_socket(ours), self.wait_descendants)
                    self.start_task(reaper.read)
                    return reaper
                ours.close()
            except BaseException:  # also when cancelled: the socket must not leak
                ours.close()
                raise
            if answer is not None:
                raise OSError(-int(answer), os.strerror(-int(answer)))
        raise ProcessError("the guardian process ended as soon as it was started")

    async def wait_descendants(self, reaper: int) -> None:
        """Wait until this reaper is dead and its descendants have ended."""
        try:
            while await self._ask(b"settle %d" % reaper) != b"yes":  # noqa: ASYNC110 - the guardian can only be polled
                await trio.sleep(DESCENDANTS_POLL)
        except ProcessError:
            return  # there is no guardian; a warning was published

    async def dismiss(self) -> None:
        """End the guardian, which has nothing more to do, and wait until it has ended."""
        self._leaving = True
        async with self._lock:
            process = self._process
            if process is not None:
                await self._say(b"bye")
                await self._reap(process)

    def abandon(self) -> None:
        """Close the socket: from now on the guardian and the reapers end everything that is left."""
        self._leaving = True
        if self._socket is not None:
            self._socket.close()

    async def _ask(self, order: bytes, fd: int | None = None) -> bytes | None:
        """Send an order to the guardian, starting one if necessary, and return its answer.

        Returns:
            None if it sent no answer and was replaced.

        Raises:
            ProcessError: there is none, and none could be started.
        """
        async with self._lock:
            if self._leaving:
                raise ProcessError("the root is stopping")
            if self._process is None:
                await self._replace()
            answer = await self._say(order, fd)
            if answer is None and not self._leaving:
                await self._replace()
            return answer

    async def _replace(self) -> None:
        """Start a new guardian. The caller holds the lock. Shielded: a cancelled start would lose the process.

        Raises:
            ProcessError: it did not start within `START_WITHIN` seconds.
        """
        with trio.move_on_after(START_WITHIN, shield=True):
            await self._start()
            return
        raise ProcessError(f"the guardian process could not be started within {START_WITHIN:g} s")

    async def _start(self) -> None:
        if self._process is not None:
            await self._reap(self._process)
        now = trio.current_time()
        self._births = [birth for birth in self._births if now - birth < PERIOD]
        if len(self._births) >= LIVES:
            raise ProcessError(
                f"the guardian process ended {LIVES} times within {PERIOD:g} s; without one no process is started"
            )
        self._births.append(now)
        await self._spawn()
        if not self._watched:
            self._watched = True
            self.start_task(self._watch)

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, "-I", "-S", str(SCRIPT), str(os.getpid())]
        env = {name: os.environ[name] for name in _NEEDED if name in os.environ}
        try:
            with theirs:
                self._process = await trio.to_thread.run_sync(_popen, argv, env, theirs.fileno(), limiter=self.limiter)
        except OSError as error:
            ours.close()
            raise ProcessError(f"the guardian process can't be started: {error}") from error
        except BaseException:  # also when cancelled: the socket must not leak
            ours.close()
            raise
        self._socket = trio.socket.from_stdlib_socket(ours)

    async def _say(self, order: bytes, fd: int | None = None) -> bytes | None:
        """Send one order and return the answer; None if none arrived. The caller holds the lock."""
        if self._socket is None or self._process is None:
            return None
        read = partial(self._socket.recv, 64)
        # Shielded for at most `ANSWER_WITHIN`: after a cancellation, a late answer would be read as that to the next
        # order.
        with trio.CancelScope(shield=True):
            try:
                rights = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))]
                await self._socket.sendmsg([order], rights)
                if order == b"bye":
                    return b""
                answer = await _in_time(read, self._process.pid, ANSWER_WITHIN)
            except (OSError, trio.ClosedResourceError):
                answer = None
        return answer or None

    async def _reap(self, process: subprocess.Popen[bytes]) -> None:
        """Reap a guardian: wait until it has ended, and kill it if it does not. The caller holds the lock."""
        if not self._leaving:
            process.kill()
        with trio.move_on_after(ANSWER_WITHIN, shield=True) as patience:
            await wait_for_death(process.pid)
        if patience.cancelled_caught:
            process.kill()
        process.poll()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._process = None

    async def _watch(self) -> None:
        """Replace the guardian whenever it dies."""
        try:
            while not self._leaving and (process := self._process):
                await wait_for_death(process.pid)
                async with self._lock:
                    if process is not self._process or self._leaving:
                        continue
                    self.warn("guardian_died", "the guardian process was killed; another one is started")
                    try:
                        await self._replace()
                    except ProcessError as error:
                        self.warn(
                            "guardian_lost", f"{error}; a SIGKILL of this process would leave its children behind"
                        )
                        return
        finally:
            self._watched = False


def _popen(argv: Sequence[str], env: dict[str, str], stdin: int) -> subprocess.Popen[bytes]:
    """Start the guardian in a session of its own, with the signals blocked that would end or stop the host."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
    try:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd="/",
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def wait_for_death(pid: int) -> None:
    """Wait until this child process has ended, without reaping it. Returns at once if there is none."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # the kernel has no pidfds, or no descriptor is left for one
        while not _has_ended(pid):  # noqa: ASYNC110 - without a pidfd nothing signals the end
            await trio.sleep(0.01)
        return
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _packed(message: Any) -> bytes:
    return marshal.dumps(message)


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("request", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return  # it has ended


# --- one root -----------------------------------------------------------------------------------------------------


class ProcessOwner(Protocol):
    """A root as this module sees it.

    Attributes:
        hurry: set when grace periods are to be skipped.
        nursery: runs the tasks that read the sockets.
        actor: publishes the warnings.
    """

    hurry: trio.Event
    nursery: trio.Nursery

    @property
    def actor(self) -> EventEmitter: ...


class EventEmitter(Protocol):
    """The root's actor, for publishing warnings."""

    def emit(self, data: EventData, *, id: str = "", corr: str = "") -> None: ...


class LiveProcess(Protocol):
    """A `process.ChildProcess` that has not ended."""

    reaper: ReaperLink

    async def end_now(self) -> None: ...


@final
class Processes:
    """The subprocesses of one root, their reapers, and the guardian.

    Created with the first subprocess of a root, and closed by the root when its tree has ended. Two roots in one
    program have a guardian each.

    Attributes:
        live: processes of which something may be left.
        pids: path of the actor -> pid of its process.
        link: to the guardian.
        limiter: bounds the threads that prepare confinements.
        hurry: set when grace periods are to be skipped.
    """

    def __init__(self, root: ProcessOwner) -> None:
        self.live: set[LiveProcess] = set()
        self.pids: dict[str, int] = {}
        self.limiter: trio.CapacityLimiter = trio.CapacityLimiter(PREPARING)
        self.hurry: trio.Event = root.hurry
        self.link: GuardianLink = GuardianLink(self.start_task, self.warn, self.limiter)
        self._root = root
        self._idle: list[ReaperLink] = []

    async def take(self) -> ReaperLink:
        """Return an idle reaper, which the caller owns until `give_back`.

        Raises:
            ProcessError: there is no guardian, and none could be started.
            OSError: no reaper can be forked.
        """
        while self._idle:
            reaper = self._idle.pop()
            if not reaper.lost:
                return reaper
            reaper.close()
        return await self.link.new_reaper()

    def give_back(self, reaper: ReaperLink) -> None:
        """Keep a reaper for the next process, or close it. A closed reaper ends everything that is left below it."""
        if reaper.lost or not reaper.empty.is_set() or len(self._idle) >= IDLE:
            reaper.close()
        else:
            self._idle.append(reaper)

    async def close(self) -> None:
        """Kill all remaining processes and end the guardian. The caller bounds the time.

        If the call is cancelled, the sockets of the reapers are closed, which makes them end the rest.
        """
        try:
            for child in self.live:
                child.reaper.order("kill")
            for child in list(self.live):
                await child.end_now()
            while self._idle:
                self._idle.pop().close()
            await self.link.dismiss()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all sockets: the reapers end everything that is left. No effect after `close`."""
        for reaper in [*self._idle, *(child.reaper for child in self.live)]:
            reaper.close()
        self._idle.clear()
        self.link.abandon()

    def warn(self, code: str, message: str) -> None:
        """Publish a warning on the kernel's event stream."""
        self._root.actor.emit(Warned(code=code, message=message))

    def start_task(self, body: Callable[[], Awaitable[object]]) -> None:
        """Run a task that is cancelled when the tree has ended."""
        self._root.nursery.start_soon(body)
