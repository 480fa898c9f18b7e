"""Subprocesses as actors: `start_process` for those one talks to, `run_process` for those one waits for.

    server = await start_process(me, ["my-server", "--stdio"], stdin="pipe")
    await server.stdin.send_all(b"hello\n")
    print(await server.stdout.receive_some())
    await server.stop()

    done = await run_process(me, ["sh", "-c", "echo hello"], timeout=10)
    print(done.status, done.stdout)

Each process belongs to a child actor of `me`, which lives exactly as long as the process and everything it left
behind: whatever ends the actor (its process exits, it is stopped or cancelled, `me` ends, the root stops) goes
through the same steps (see `child`). What is alive when even we are killed is ended by its reaper (see `guardian`).

An exit status other than 0 is not a crash of that actor: it is its result.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, Self, final

import msgspec
import trio

from ..protocol.kernel.errors import ActorFailed, ProcessError, TimedOut
from ..protocol.kernel.events import Warned
from .actor import Actor
from .child import Child, ProcessEnd, ProcessStop
from .confinement import Confinement
from .guardian_link import ReaperLost
from .pipes import Input, Output
from .processes import Processes
from .spawn import Command, refusal, spawn
from .tail import Tail

if TYPE_CHECKING:
    from .ref import Ref

__all__ = ["Completed", "Process", "ProcessEnd", "ProcessStop", "Processes", "run_process", "start_process"]

OUTPUT_LIMIT = 8 * 1024 * 1024

FREED_WITHIN = 2.0
"""Seconds for what a confinement had for its process to be removed."""


class Completed(ProcessEnd, frozen=True, kw_only=True):
    """What became of a process that was run to its end.

    Attributes:
        stdout: what it wrote, up to the limit.
        truncated: whether it wrote more; also if it was killed for what it wrote to stderr.
    """

    stdout: bytes
    truncated: bool


@final
class Process:
    """A running process, for its users.

    Attributes:
        argv: what was started.
        pid: its process id.
        stdin: where to send to (None unless `stdin="pipe"`).
        stdout: where to receive from (None if `stdout="null"`).
        ref: its actor, to be watched or cancelled.
    """

    def __init__(self, argv: tuple[str, ...], child: Child, ref: Ref[ProcessEnd]) -> None:
        self.argv = argv
        self.pid = child.pid
        self.stdin = child.stdin
        self.stdout = child.stdout
        self.ref = ref
        self._tail = child.tail
        self._child = child
        self._stop = child.stop
        self._end: ProcessEnd | None = None
        self._over = trio.Event()

    def __repr__(self) -> str:
        return f"<Process {self.pid} {self.argv[0]!r} {self.ref.state}>"

    @property
    def stderr_tail(self) -> str:
        """The last 32 KiB it has written to stderr so far."""
        return self._tail.text

    @property
    def stderr_overflowed(self) -> trio.Event:
        """Set once it has written more than `stderr_limit` bytes to stderr."""
        return self._tail.overflowed

    @property
    def ended(self) -> ProcessEnd | None:
        """How it ended; None while it runs."""
        return self._end

    async def exited(self) -> None:
        """Wait until the process itself has exited. What it started may live on until its actor has ended."""
        await self._child.reaper.exited.wait()

    @property
    def has_exited(self) -> bool:
        """Whether the process itself has exited."""
        return self._child.reaper.exited.is_set()

    def send_signal(self, number: signal.Signals) -> None:
        """Signal all of its group; harmless when it has exited."""
        if self._end is None:
            self._child.send_signal(number)

    async def members(self) -> list[int]:
        """Return the pids of the process and of all that it has started, as far as they live."""
        return await self._child.reaper.members() if self._end is None else []

    def stop_as(self, stop: ProcessStop) -> None:
        """From now on it is ended as patiently as this, but never more so than it was started with."""
        first = self._stop
        self._child.stop = ProcessStop(eof=min(stop.eof, first.eof), term=min(stop.term, first.term))

    async def wait(self) -> ProcessEnd:
        """Wait until it has ended by itself or was ended, with all it left behind (but see `ProcessEnd.unswept`).

        Raises:
            ProcessError: it did not end within its time. It was sent SIGKILL, and is still being ended.
        """
        await self._over.wait()
        if self._end is None:
            raise ProcessError(_late(self.argv[0], self.pid, None))
        return self._end

    async def stop(self) -> ProcessEnd:
        """End it, see `child` for the steps, and wait until it has. Harmless when it has ended already."""
        await self.ref.stop()
        return await self.wait()

    def settle(self, end: ProcessEnd | None) -> None:
        """Record how it ended. Its actor calls this."""
        self._end = end
        self._over.set()


async def start_process(
    me: Actor,
    argv: Sequence[str | os.PathLike[str]],
    *,
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: Literal["null", "pipe"] = "null",
    stdout: Literal["pipe", "null"] = "pipe",
    on_stderr: Callable[[str], None] | None = None,
    stderr_limit: int | None = None,
    stop: ProcessStop | None = None,
    pass_fds: Sequence[int] = (),
    confinement: Confinement | None = None,
) -> Process:
    """Start a process under a child actor of `me`. From its first instruction on it has a reaper.

    Args:
        argv: program and arguments; no shell.
        name: last part of the actor's path; by default the program's name.
        env: its whole environment; None for ours.
        cwd: where it starts; None for our working directory.
        stdin: `pipe` to send to it; `null` and it reads the end of its input at once.
        stdout: `pipe` to receive from it. Do so: the process blocks when 64 KiB are unread.
        on_stderr: called with each line it writes to stderr, cut at 8 KiB. Stderr is always read.
        stderr_limit: bytes of stderr whose lines `on_stderr` is called with; None for all.
        stop: how patiently it is ended.
        pass_fds: our descriptors that it inherits under the same numbers; they stay ours to close.
        confinement: what it may not do, see there; it is for this process alone.

    Raises:
        ProcessError: it could not be started; the text says why.
        ShuttingDown: `me` or the root is stopping.
    """
    command = tuple(os.fspath(part) for part in argv)
    stop = stop or ProcessStop()
    started: list[Process] = []
    processes = me.root.processes

    how = Command(argv=command, env=env, cwd=cwd, pass_fds=pass_fds, confinement=confinement)

    async def live(own: Actor) -> ProcessEnd:
        async with _freed(own, confinement):
            child = await _fork(
                processes, how, stdin=stdin, stdout=stdout, stop=stop, tail=Tail(on_stderr, most=stderr_limit)
            )
            return await _live(own, Process(command, child, own.ref), child, started, confinement)

    label = name or (PurePath(command[0]).name if command else "process")
    try:
        await me.start(live, name=label, link=False, stop_within=stop.within)
    except ActorFailed as failed:
        if isinstance(failed.__cause__, ProcessError):
            raise failed.__cause__ from None
        raise
    return started[0]


async def run_process(
    me: Actor,
    argv: Sequence[str | os.PathLike[str]],
    *,
    name: str | None = None,
    input: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    output_limit: int = OUTPUT_LIMIT,
    on_overflow: Literal["discard", "kill"] = "discard",
    on_stderr: Callable[[str], None] | None = None,
    stderr_limit: int = OUTPUT_LIMIT,
    timeout: float | None = None,
    stop: ProcessStop | None = None,
    pass_fds: Sequence[int] = (),
    confinement: Confinement | None = None,
) -> Completed:
    """Run a process to its end and collect what it writes. A non-zero status does not raise.

    Args:
        input: what it reads from stdin; None for nothing at all (`/dev/null`). It need not read it.
        output_limit: bytes of stdout that are kept.
        on_overflow: what happens when it writes more, or more than `stderr_limit` to stderr: `discard` the rest and let
            it run on, or `kill` it.
        timeout: seconds; then it is ended.

    The other arguments are those of `start_process`.

    Raises:
        ProcessError: it could not be started, or did not end within its time (see `Process.wait`); the text says which.
        TimedOut: it did not end within `timeout`. It has been ended.
    """
    process = await start_process(
        me,
        argv,
        name=name,
        env=env,
        cwd=cwd,
        stdin="null" if input is None else "pipe",
        on_stderr=on_stderr,
        stderr_limit=stderr_limit,
        stop=stop,
        pass_fds=pass_fds,
        confinement=confinement,
    )
    try:
        with trio.move_on_after(float("inf") if timeout is None else timeout) as limit:
            output, truncated = await _talk(process, input, output_limit, kill=on_overflow == "kill")
            end = await process.wait()  # outside of the nursery, which would wrap its error in a group
    finally:
        if process.ended is None:
            process.ref.cancel()
            with me.root.shield((stop or ProcessStop()).within):
                await process.ref.wait()
    if limit.cancelled_caught:
        raise TimedOut(f"{process.argv[0]!r} did not end within {timeout:g} s and was ended{_said(process)}")
    return Completed(**msgspec.structs.asdict(end), stdout=output, truncated=truncated)


async def _live(
    own: Actor, process: Process, child: Child, started: list[Process], confinement: Confinement | None
) -> ProcessEnd:
    """The life of a process that has just begun."""
    processes = own.root.processes
    processes.pids[own.path] = child.pid
    try:
        started.append(process)
        own.started()
        await _until_exit_or_stop(own, child)
    finally:
        processes.pids.pop(own.path, None)
        end = await _end(own, child, process, confinement)
    return end


@asynccontextmanager
async def _freed(own: Actor, confinement: Confinement | None) -> AsyncIterator[None]:
    """Call `Confinement.end` after the block, whatever happens in it."""
    try:
        yield
    finally:
        if confinement is not None:
            with own.root.shield(FREED_WITHIN):
                await trio.to_thread.run_sync(
                    confinement.end, limiter=own.root.processes.limiter, abandon_on_cancel=True
                )


async def _until_exit_or_stop(own: Actor, child: Child) -> None:
    async def until_exit(scope: trio.CancelScope) -> None:
        await child.reaper.exited.wait()
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child.pump)
        nursery.start_soon(until_exit, nursery.cancel_scope)
        async for _ in own:
            pass  # a process has no use for mail; its input comes through its pipes
        nursery.cancel_scope.cancel()


async def _end(own: Actor, child: Child, process: Process, confinement: Confinement | None) -> ProcessEnd:
    """End the process, and say how it ended; also if the time for it is too short."""
    end = None
    try:
        with own.cleanup():
            end = _meant(await child.end(), confinement)
    finally:
        if end is None:
            end = child.leave()
            own.emit(Warned(code="process_left", message=_late(process.argv[0], child.pid, end)))
        process.settle(end)
    return end


def _meant(end: ProcessEnd, confinement: Confinement | None) -> ProcessEnd:
    """How the process itself has ended, which may not be the one that we have started."""
    if confinement is None or end.status is None:
        return end
    status = confinement.meaning(end.status)
    return msgspec.structs.replace(end, status=status, signal=-status if status < 0 else None)


async def _talk(process: Process, input: bytes | None, output_limit: int, *, kill: bool) -> tuple[bytes, bool]:
    """Send the input and read the output until the process has ended: the output, and whether it was cut."""
    assert process.stdout is not None
    output = bytearray()
    truncated = False
    async with trio.open_nursery() as nursery:
        if input is not None:
            nursery.start_soon(_send, process, input)
        if kill:
            nursery.start_soon(_kill_at_overflow, process)
        while data := await process.stdout.receive_some():
            truncated = truncated or len(output) + len(data) > output_limit
            output += data[: output_limit - len(output)]
            if truncated and kill:
                process.ref.cancel()
        await process.ref.wait()
        nursery.cancel_scope.cancel()
    return bytes(output), truncated or (kill and process.stderr_overflowed.is_set())


async def _kill_at_overflow(process: Process) -> None:
    await process.stderr_overflowed.wait()
    process.ref.cancel()


async def _send(process: Process, data: bytes) -> None:
    assert process.stdin is not None
    try:
        await process.stdin.send_all(data)
        await process.stdin.aclose()
    except trio.BrokenResourceError:
        return  # it need not read all of its input


def _late(program: str, pid: int, end: ProcessEnd | None) -> str:
    """What is said of a process for which the time to end it was too short; None as end if it lives."""
    if end is None:
        return f"{program!r} (pid {pid}) did not end in time; SIGKILL was sent, and it is still being ended"
    how = f"exited with status {end.status}" if end.signal is None else f"was ended by signal {end.signal}"
    return f"{program!r} (pid {pid}) {how}; processes that it left behind are still being ended"


def _said(process: Process) -> str:
    tail = process.stderr_tail.strip()
    return f"; it wrote to stderr: {tail[-500:]}" if tail else ""


async def _fork(
    processes: Processes,
    command: Command,
    *,
    stdin: Literal["null", "pipe"],
    stdout: Literal["null", "pipe"],
    stop: ProcessStop,
    tail: Tail,
) -> Child:
    """Start the process. No checkpoint once it has started, so a cancelled caller still gets its child.

    Raises:
        ProcessError: it could not be started.
    """
    if not command.argv:
        raise ProcessError("can't start a process: its command line is empty")
    while True:
        try:
            reaper = await processes.take()
        except OSError as error:
            raise refusal(error, command.argv[0]) from error
        try:
            with _Pipes(command.argv[0], stdin, stdout) as pipes:
                ends = (pipes.stdin, pipes.stdout, pipes.stderr)
                pid = await spawn(reaper, command, ends, limiter=processes.limiter)
                return Child(processes, reaper, pid, stop, pipes.streams(), tail)
        except ReaperLost:
            reaper.close()  # and take another one
        except BaseException:  # also when cancelled: the reaper must not be lost
            processes.give_back(reaper)
            raise


class _Pipes:
    """The pipes of a child that is about to be forked; what was not handed over is closed at the end of the block."""

    def __init__(self, program: str, stdin: str, stdout: str) -> None:
        self._open: list[int] = []
        self._ours: list[int | None] = [None, None, None]
        try:
            if stdin == "pipe":
                self.stdin, self._ours[0] = self._pipe()
            else:
                self.stdin = self._null()
            if stdout == "pipe":
                self._ours[1], self.stdout = self._pipe()
            else:
                self.stdout = self._null()
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

    def _null(self) -> int:
        fd = os.open(os.devnull, os.O_RDWR)
        self._open.append(fd)
        return fd

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._open += ends
        return ends
