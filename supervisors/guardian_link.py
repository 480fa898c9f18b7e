"""The host's ends of its guardian and of its reapers; see `guardian` for what those are.

A guardian that was killed is replaced at once, one that does not answer within `ANSWER_WITHIN` is killed and replaced.
One that can't be kept alive (more than `LIVES` in `PERIOD` seconds) is given up with a warning, and from then on no
process is started until a new one lives. The reapers go on meanwhile: they need no guardian.
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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

import trio

from ..protocol.kernel.errors import ProcessError
from . import guardian

if TYPE_CHECKING:
    from .guardian import Request

T = TypeVar("T")

ANSWER_WITHIN = 10.0
"""Seconds. It answers within a millisecond; one that hangs is replaced."""

START_WITHIN = 30.0
"""Seconds for a guardian or a process to be started. It takes 30 milliseconds and 1 millisecond."""

CONTINUED_AFTER = 1.0
"""Seconds without an answer after which it is taken to be stopped (SIGSTOP), and is continued."""

SETTLE_POLL = 0.02
"""Seconds between two questions whether what a dead reaper left has ended."""

LIVES = 5
PERIOD = 30.0

SCRIPT = Path(guardian.__file__)
KILLED = -int(signal.SIGKILL)
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGTSTP)
_NEEDED = ("PATH", "LD_LIBRARY_PATH")


class StartRefused(Exception):
    """The kernel refused to start a process.

    Attributes:
        number: what it said, an `errno`.
        stage: what was refused, see `guardian.Refused`.
    """

    def __init__(self, number: int, stage: str) -> None:
        super().__init__(number, stage)
        self.number = number
        self.stage = stage


class ReaperLost(Exception):
    """The reaper was killed; it has not started anything."""


@final
class ReaperLink:
    """The host's end of one reaper, which runs one process at a time.

    Attributes:
        pid: of the reaper.
        exited: set when its process has ended; then `status` is known, as in `subprocess`.
        empty: set when nothing is left of the process and of all that it started. True of a new reaper.
        swept: number of processes that the reaper has ended besides the process itself; known when `empty` is set.
        crowd: set when the process has started many others instead of ending; they are stopped.
        lost: the reaper is dead.
    """

    def __init__(self, pid: int, link: trio.socket.SocketType, settle: Callable[[int], Awaitable[None]]) -> None:
        self.pid = pid
        self.lost = False
        self._link = link
        self._settle = settle
        self._unsent: deque[bytes] = deque()
        self._answers: deque[_Answer] = deque()
        self._new()
        self.empty.set()

    def _new(self) -> None:
        self.exited, self.empty, self.crowd = trio.Event(), trio.Event(), trio.Event()
        self.status: int | None = None
        self.swept = 0

    async def start(self, request: Request, fds: Sequence[int]) -> int:
        """Start a process and return its pid. The caller shields this.

        Raises:
            StartRefused: the kernel refused it.
            ValueError: a part of the request can't be given to the kernel.
            ReaperLost: the reaper was killed before.
        """
        self._new()
        answer = self._expect()
        packet, in_file = _packed(("start", request)), -1
        try:
            if len(packet) > guardian.LARGEST:
                in_file = _in_memory(_packed(request))
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
                raise StartRefused(error.errno or 0, "start") from error  # such as: too many descriptors
            raise ReaperLost from error
        finally:
            if in_file >= 0:
                os.close(in_file)
        try:
            message = await self._given(answer, START_WITHIN)
        except ReaperLost:  # it may have been started, so not again
            raise StartRefused(errno.ESRCH if self.lost else errno.ETIMEDOUT, "start") from None
        if message[0] == "started":
            return int(message[1])
        self.exited.set()
        self.empty.set()
        if message[0] == "invalid":
            raise ValueError(message[1])
        raise StartRefused(message[1], message[2])

    def order(self, *order: object) -> None:
        """Send an order that has no answer; see `guardian`. One to a dead reaper is passed over."""
        packet = _packed(order)
        if not self._unsent:
            try:
                self._socket_send(packet)
                return
            except BlockingIOError:
                pass  # it reads nothing: it is stopped
            except OSError:
                return
        self._unsent.append(packet)
        self.go_on()

    async def members(self) -> list[int]:
        """Return the pids of its process and of all that this has started, as far as they live."""
        if self.lost or self.empty.is_set():
            return []
        answer = self._expect()
        self.order("members")
        try:
            _, pids = await self._given(answer, ANSWER_WITHIN)
        except ReaperLost:
            return []
        return list(pids)

    async def read(self) -> None:
        """Take what the reaper sends, until it is dead and what it left behind has ended."""
        try:
            while packet := await self._link.recv(guardian.LARGEST):
                self._note(marshal.loads(packet))  # noqa: S302 - of our own process
                while self._unsent and not self.lost:
                    self._socket_send(self._unsent[0])
                    self._unsent.popleft()
        except (OSError, trio.ClosedResourceError):
            pass
        self.lost = True
        while self._answers:
            self._answers.popleft().lose()
        if not self.empty.is_set():
            await self._settle(self.pid)
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
                    self._answers.popleft().give(message)

    def _expect(self) -> _Answer:
        """Return what the answer to the next order is given to. Answers come in the order of the orders."""
        answer = _Answer()
        self._answers.append(answer)
        return answer

    async def _given(self, answer: _Answer, within: float) -> tuple[Any, ...]:
        """Wait for this answer. A reaper that does not give it in time is killed: the guardian ends what is left.

        Raises:
            ReaperLost: the reaper is dead.
        """
        if not self.lost and not await _in_time(answer.come, self.pid, within):
            _signal(self.pid, signal.SIGKILL)
        if answer.message is None:
            raise ReaperLost
        return answer.message

    def go_on(self) -> None:
        """Continue the reaper, which may have been stopped."""
        if not self.lost:
            _signal(self.pid, signal.SIGCONT)

    def _socket_send(self, packet: bytes) -> None:
        os.write(self._link.fileno(), packet)

    def close(self) -> None:
        """Let the reaper go: it ends what it has left, then itself. Harmless when done before."""
        self.lost = True
        self._link.close()


async def _in_time(wait: Callable[[], Awaitable[T]], pid: int, within: float) -> T | None:
    """Wait for what a process of ours is to send, and continue the process if it was stopped.

    Its seconds are those of the real clock: the process runs on no `MockClock`.

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
    def __init__(self) -> None:
        self.over = trio.Event()
        self.message: tuple[Any, ...] | None = None

    async def come(self) -> bool:
        await self.over.wait()
        return True

    def give(self, message: tuple[Any, ...]) -> None:
        self.message = message
        self.over.set()

    def lose(self) -> None:
        self.over.set()


@dataclass(eq=False, repr=False)
class GuardianLink:
    """Keeps one guardian for one root.

    Attributes:
        start_task: runs a task that may be cancelled when the root stops.
        warn: told `(code, message)`.
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
        """Of the guardian; None if none lives."""
        return self._process.pid if self._process else None

    async def new_reaper(self) -> ReaperLink:
        """Have a reaper forked.

        Raises:
            ProcessError: there is no guardian, and none could be started.
            OSError: the kernel forks no more processes for us, or has no more descriptors.
        """
        for _ in range(LIVES + 1):
            # A pair for each try: a guardian that was killed may have given the other end to a reaper.
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                with theirs:
                    answer = await self._ask(b"reaper", theirs.fileno())
                if answer is not None and int(answer) > 0:
                    reaper = ReaperLink(int(answer), trio.socket.from_stdlib_socket(ours), self.settle)
                    self.start_task(reaper.read)
                    return reaper
                ours.close()
            except BaseException:  # also when cancelled: the socket must not leak
                ours.close()
                raise
            if answer is not None:
                raise OSError(-int(answer), os.strerror(-int(answer)))
        raise ProcessError("the guardian process ended as soon as it was started")

    async def settle(self, reaper: int) -> None:
        """Wait until this reaper is dead, and what it left behind has ended."""
        try:
            while await self._ask(b"settle %d" % reaper) != b"yes":  # noqa: ASYNC110 - it can only be asked
                await trio.sleep(SETTLE_POLL)
        except ProcessError:
            return  # there is no guardian, which has been warned of

    async def dismiss(self) -> None:
        """Nothing is left: the guardian may leave. Waits until it has."""
        self._leaving = True
        async with self._lock:
            process = self._process
            if process is not None:
                await self._say(b"bye")
                await self._bury(process)

    def abandon(self) -> None:
        """Leave what is left to the reapers and the guardian, which end it from now on."""
        self._leaving = True
        if self._socket is not None:
            self._socket.close()

    async def _ask(self, order: bytes, fd: int | None = None) -> bytes | None:
        """Send an order to the guardian, started if there is none, and return its answer.

        Returns:
            None if it gave no answer, and was replaced.

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
        """Start a guardian in place of the last one. The caller holds the lock. A cancelled start would be lost."""
        with trio.move_on_after(START_WITHIN, shield=True):
            await self._start()
            return
        raise ProcessError(f"the guardian process could not be started within {START_WITHIN:g} s")

    async def _start(self) -> None:
        if self._process is not None:
            await self._bury(self._process)
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
        """Send one order and return the answer; None if none came. The caller holds the lock."""
        if self._socket is None or self._process is None:
            return None
        read = partial(self._socket.recv, 64)
        # Shielded for at most `ANSWER_WITHIN`: a late answer would be taken for that to the next order.
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

    async def _bury(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until it has ended, kill it if it does not, and take its status. The caller holds the lock."""
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
        try:
            await self._keep_alive()
        finally:
            self._watched = False

    async def _keep_alive(self) -> None:
        while not self._leaving and (process := self._process):
            await wait_for_death(process.pid)
            async with self._lock:
                if process is not self._process or self._leaving:
                    continue
                self.warn("guardian_died", "the guardian process was killed; another one is started")
                try:
                    await self._replace()
                except ProcessError as error:
                    self.warn("guardian_lost", f"{error}; a SIGKILL of this process would leave its children behind")
                    return


def _popen(argv: Sequence[str], env: dict[str, str], stdin: int) -> subprocess.Popen[bytes]:
    """Start the guardian in a session of its own, with the signals blocked that end or stop the host."""
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
    """Wait until this child of ours has ended, without taking its status. Returns at once if there is none."""
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


async def _poll_for_death(pid: int) -> None:
    """As `wait_for_death`, where the kernel has no pidfds or we have no descriptor left for one."""
    while not _has_ended(pid):  # noqa: ASYNC110 - who would set an event? The pidfd that we can't have
        await trio.sleep(0.01)


def _has_ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _packed(message: Any) -> bytes:
    return marshal.dumps(message)


def _in_memory(content: bytes) -> int:
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
