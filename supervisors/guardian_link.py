"""The host's end of its guardian: start it, keep it told, notice its death, send it home.

A leader is registered before its process is handed out, and the answer is waited for. A guardian that is
killed is replaced at once and told everything again; one that can't be kept alive (more than `LIVES` in `PERIOD`
seconds) is given up with a warning, and from then on no process is started until a new one lives.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import trio

from ..protocol.kernel.errors import ProcessError
from . import guardian
from .spawn import spawn, wait_for_death

ANSWER_WITHIN = 2.0
"""Seconds. It answers within a millisecond; one that hangs is replaced."""

START_WITHIN = 5.0
"""Seconds. It takes 20 milliseconds."""

LIVES = 5
PERIOD = 30.0

SCRIPT = Path(guardian.__file__)
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGTSTP)
_NEEDED = ("PATH", "LD_LIBRARY_PATH")


@dataclass(eq=False, repr=False)
class GuardianLink:
    """Keeps one guardian for one root.

    Attributes:
        token: the root's.
        start_task: runs a task that may be cancelled when the root stops; it watches the guardian.
        warn: told `(code, message)`.
        limiter: bounds the threads that fork.
    """

    token: str
    start_task: Callable[[Callable[[], Awaitable[None]]], None]
    warn: Callable[[str, str], None]
    limiter: trio.CapacityLimiter
    _lock: trio.Lock = field(default_factory=trio.Lock)
    _leaders: dict[int, int] = field(default_factory=dict)
    _births: list[float] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _socket: trio.socket.SocketType | None = None
    _watched: bool = False
    _leaving: bool = False

    @property
    def pid(self) -> int | None:
        """Of the guardian; None if none lives."""
        return self._process.pid if self._process else None

    async def ensure(self) -> None:
        """There is a guardian when this returns.

        Raises:
            ProcessError: none could be started.
        """
        async with self._lock:
            if self._process is None:
                await self._replace()
        if not self._watched:
            self._watched = True
            self.start_task(self._watch)

    async def register(self, pid: int, start: int) -> None:
        """The guardian knows this leader when this returns.

        Raises:
            ProcessError: it can't be told, and no other could be started.
        """
        self._leaders[pid] = start
        async with self._lock:
            if not await self._say(f"group {pid} {start}"):
                await self._replace()

    async def forget(self, pid: int) -> None:
        """This leader's session is proven empty."""
        self._leaders.pop(pid, None)
        async with self._lock:
            await self._say(f"forget {pid}")

    async def dismiss(self) -> None:
        """Everything is proven dead: the guardian may leave. Waits until it has."""
        self._leaving = True
        async with self._lock:
            process = self._process
            if process is not None:
                await self._say("bye")
                await self._bury(process)

    def abandon(self) -> None:
        """Something is left that we could not end: leave it to the guardian, which hunts from now on."""
        self._leaving = True
        if self._socket is not None:
            self._socket.close()

    async def _replace(self) -> None:
        """Start one, if need be in place of another. Holds the lock; to be cancelled in the middle would lose it."""
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
        for pid, start in list(self._leaders.items()):
            if not await self._say(f"group {pid} {start}"):
                raise ProcessError("the guardian process ended as soon as it was started")

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = await spawn(
                    [sys.executable, "-I", "-S", str(SCRIPT), str(os.getpid()), self.token],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                    cwd="/",
                    limiter=self.limiter,
                    block=_DEAF_TO,
                )
            except BaseException:  # also when cancelled: the socket must not leak
                ours.close()
                raise
        self._socket = trio.socket.from_stdlib_socket(ours)

    async def _say(self, line: str) -> bool:
        """Send one line and have it answered; False if that failed. Holds the lock."""
        if self._socket is None:
            return False
        with trio.move_on_after(ANSWER_WITHIN, shield=True):
            try:
                await self._socket.send(line.encode())
                return line == "bye" or await self._socket.recv(16) == b"ok"
            except OSError:
                return False
        return False

    async def _bury(self, process: subprocess.Popen[bytes]) -> None:
        """Have it gone, by force if need be, and reap it. Holds the lock."""
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
