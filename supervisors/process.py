"""Subprocesses as actors: `start_process` for a process to talk to, `run_process` to run one to its end.

    server = await start_process(me, ["my-server", "--stdio"], stdin="pipe")
    await server.stdin.send_all(b"hello\n")
    print(await server.stdout.receive_some())
    await server.stop()

    done = await run_process(me, ["sh", "-c", "echo hello"], timeout=10)
    print(done.status, done.stdout)

Each process belongs to a child actor of `me`, which lives exactly as long as the process and all its descendants.
However the actor ends (the process exits, the actor is stopped or cancelled, `me` ends, the root stops), the same steps
follow. An exit status other than 0 is a result, not a crash of that actor.

**The problem.** Waiting for a process is not enough to end it. It may ignore SIGTERM; a full pipe may keep it from
reaching its end; its helpers may still write after it has exited; daemons that it started may live on. And this program
may be killed at any moment, even with SIGKILL.

**What does not work.** Killing the process group: a descendant can leave it. Marking the environment and searching
`/proc`: a descendant can clear its environment. `subprocess` and a thread: the process lives on when this program is
killed.

**What this module does.** Each process leads a session of its own, so a Ctrl-C in the terminal reaches only this
program. Its parent is a reaper (see `guardian`), which knows all its descendants and ends them even when this program
is dead. `ChildProcess.end` takes these steps, each bounded:

    1. fail waiting calls: a pending send to stdin breaks, stdout ends for the receiver
    2. close stdin, and keep reading the output, since a full pipe would block the process        eof seconds
    3. SIGTERM to its group, then SIGCONT                                                          term seconds
    4. end all remaining descendants: SIGTERM first if the process ended politely, SIGKILL after at most `SWEEP_GRACE`
    5. report the exit status and the tail of stderr

A process without a stdin pipe starts at step 3. All grace periods are skipped when the root is in a hurry, and for a
process that uses them to start more and more processes (`guardian.CROWD`).

Invariants:
- From its first instruction on, a process has a reaper.
- Step 4 ends when the kernel reports that no descendant is left, not after some time. If the caller's time ends
  earlier, the exit status is reported all the same (`ChildProcess.leave`), and the reaper continues, however long it
  takes.
- Nothing awaits between the start of a process and the creation of its `ChildProcess`, so a cancelled caller still ends
  it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, Self, final

import msgspec
import trio

from ..protocol.kernel.errors import ActorFailed, ProcessError, TimedOut
from ..protocol.kernel.events import Warned
from ..protocol.kernel.text_cuts import tail_of
from .actor import Actor
from .confinement import Confinement
from .guardian_link import Processes, ReaperLost, StartCommand, refusal, spawn
from .pipes import Input, ProcessOutput, Tail

if TYPE_CHECKING:
    from .guardian_link import ReaperLink
    from .ref import Ref

OUTPUT_LIMIT = 8 * 1024 * 1024
"""Default bytes of stdout that `run_process` keeps, and of stderr whose lines it passes on."""

SWEEP_GRACE = 0.2
"""Seconds between SIGTERM and SIGKILL for descendants of a process that ended by itself."""

LINGER = 0.2
"""Seconds that helpers have to finish writing after their leader has exited (`sh -c 'work | tee log'`)."""

LINGER_FIRST, LINGER_POLL = 0.0002, 0.005
"""Seconds between two checks for such helpers: at first and at most. The first process in bubblewrap's pid namespace
holds the pipes for a fraction of a millisecond after bubblewrap itself has exited."""

KILL_WITHIN = 1.0
"""Seconds for SIGKILL to take effect everywhere, on top of the grace periods."""

FREED_WITHIN = 2.0
"""Seconds for `Confinement.end` to remove the resources of a confinement."""


class ProcessStop(msgspec.Struct, frozen=True, kw_only=True):
    """Grace periods for ending a process.

    Attributes:
        eof: seconds after its stdin was closed.
        term: seconds after SIGTERM.
    """

    eof: float = 0.5
    term: float = 0.5

    @property
    def within(self) -> float:
        """Upper bound of all steps, in seconds."""
        return self.eof + self.term + LINGER + KILL_WITHIN


QUICK_STOP = ProcessStop(eof=0.2, term=0.2)
"""For processes within a conversation turn: a user who interrupts gets the prompt back within half a second, even if
the program ignores SIGTERM."""


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a process.

    Attributes:
        status: its exit status, 0 to 255; if a signal ended it, minus the signal's number (as in `subprocess`);
            None if even SIGKILL did not end it in time (it hangs in the kernel; its reaper keeps trying).
        signal: number of the signal that ended it, else None.
        stderr_tail: the last 32 KiB that it wrote to stderr.
        swept: number of descendants that outlived it and were ended.
        unswept: True if descendants were still being ended when the time was over.
    """

    status: int | None
    signal: int | None
    stderr_tail: str
    swept: int = 0
    unswept: bool = False


class Completed(ProcessEnd, frozen=True, kw_only=True):
    """The end of a process that was run by `run_process`.

    Attributes:
        stdout: its output, up to the limit.
        truncated: True if it wrote more; also if it was killed because of its stderr.
    """

    stdout: bytes
    truncated: bool


@final
class Process:
    """A running process, for its users.

    Attributes:
        argv: program and arguments.
        pid: its process id.
        stdin: stream to send to (None unless `stdin="pipe"`).
        stdout: stream to receive from (None if `stdout="null"`).
        ref: its actor, to be watched or cancelled.
    """

    def __init__(self, argv: tuple[str, ...], child: ChildProcess, ref: Ref[ProcessEnd]) -> None:
        self.argv = argv
        self.pid = child.pid
        self.stdin = child.stdin
        self.stdout = child.stdout
        self.ref = ref
        self._child = child
        self._stop = child.stop
        self._end: ProcessEnd | None = None
        self._over = trio.Event()

    def __repr__(self) -> str:
        return f"<Process {self.pid} {self.argv[0]!r} {self.ref.state}>"

    @property
    def stderr_tail(self) -> str:
        """The last 32 KiB that it has written to stderr so far."""
        return self._child.tail.text

    @property
    def stderr_overflowed(self) -> trio.Event:
        """Set once it has written more than `stderr_limit` bytes to stderr."""
        return self._child.tail.overflowed

    @property
    def ended(self) -> ProcessEnd | None:
        """Its end; None while it runs."""
        return self._end

    async def exited(self) -> None:
        """Wait until the process itself has exited. Its descendants may live until its actor has ended."""
        await self._child.reaper.exited.wait()

    @property
    def has_exited(self) -> bool:
        """True once the process itself has exited."""
        return self._child.reaper.exited.is_set()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group. No effect once it has exited."""
        if self._end is None:
            self._child.send_signal(number)

    async def members(self) -> list[int]:
        """Return the pids of the process and its descendants that live; empty once `ended` is set."""
        return await self._child.reaper.members() if self._end is None else []

    def stop_as(self, stop: ProcessStop) -> None:
        """Use these grace periods from now on, but none longer than those it was started with."""
        first = self._stop
        self._child.stop = ProcessStop(eof=min(stop.eof, first.eof), term=min(stop.term, first.term))

    async def wait(self) -> ProcessEnd:
        """Wait until the process and its descendants have ended (but see `ProcessEnd.unswept`).

        Raises:
            ProcessError: it did not end within its time. It was sent SIGKILL, and is still being ended.
        """
        await self._over.wait()
        if self._end is None:
            raise ProcessError(_late(self.argv[0], self.pid, None))
        return self._end

    async def stop(self) -> ProcessEnd:
        """End it by the steps at the top of this module, and wait for that. No effect if it has ended."""
        await self.ref.stop()
        return await self.wait()

    def record_end(self, end: ProcessEnd | None) -> None:
        """Record its end. Called by its actor."""
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
    """Start a process under a child actor of `me`.

    Args:
        argv: program and arguments; no shell.
        name: last part of the actor's path (default: the program's name).
        env: its whole environment; None for a copy of this program's.
        cwd: its working directory; None for this program's.
        stdin: `pipe` to send to it; with `null` it reads the end of its input at once.
        stdout: `pipe` to receive from it. The caller must receive: the process blocks when 64 KiB are unread.
        on_stderr: called with each line that it writes to stderr, cut at 8 KiB. Stderr is always read.
        stderr_limit: bytes of stderr whose lines `on_stderr` is called with; None for all.
        stop: grace periods for ending it.
        pass_fds: descriptors of this program that it inherits under the same numbers; the caller closes its own.
        confinement: its sandbox. One object serves one process.

    Raises:
        ProcessError: it could not be started; the text says why.
        ShuttingDown: `me` or the root is stopping.
    """
    command = tuple(os.fspath(part) for part in argv)
    stop = stop or ProcessStop()
    started: list[Process] = []
    processes = me.root.processes
    how = StartCommand(argv=command, env=env, cwd=cwd, pass_fds=pass_fds, confinement=confinement)

    async def own_process(own: Actor) -> ProcessEnd:
        async with _ended_confinement(own, confinement):
            tail = Tail(on_stderr, most=stderr_limit)
            child = await _fork(processes, how, stdin=stdin, stdout=stdout, stop=stop, tail=tail)
            process = Process(command, child, own.ref)
            processes.pids[own.path] = child.pid
            try:
                started.append(process)
                own.started()
                await _until_exit_or_stop(own, child)
            finally:
                processes.pids.pop(own.path, None)
                end = await _end(own, child, process, confinement)
            return end

    label = name or (PurePath(command[0]).name if command else "process")
    try:
        await me.start(own_process, name=label, link=False, stop_within=stop.within)
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
    """Run a process to its end and collect its output. A non-zero status does not raise.

    Args:
        input: its stdin; None for `/dev/null`. The process need not read it.
        output_limit: bytes of stdout that are kept.
        on_overflow: reaction to more output, or to more than `stderr_limit` on stderr: `discard` the rest and let it
            run on, or `kill` it.
        timeout: seconds after which it is ended.

    The other arguments have the same meaning as in `start_process`.

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
            output, truncated = await _communicate(process, input, output_limit, kill=on_overflow == "kill")
            end = await process.wait()  # outside of `_communicate`'s nursery, which would wrap its error in a group
    finally:
        if process.ended is None:
            process.ref.cancel()
            with me.root.shield((stop or ProcessStop()).within):
                await process.ref.wait()
    if limit.cancelled_caught:
        tail = process.stderr_tail.strip()
        wrote = f"; it wrote to stderr: {tail_of(tail, 500)}" if tail else ""
        raise TimedOut(f"{process.argv[0]!r} did not end within {timeout:g} s and was ended{wrote}")
    return Completed(**msgspec.structs.asdict(end), stdout=output, truncated=truncated)


async def _communicate(process: Process, input: bytes | None, output_limit: int, *, kill: bool) -> tuple[bytes, bool]:
    """Send the input and read the output until the process has ended; return the output and whether it was cut."""
    assert process.stdout is not None
    output = bytearray()
    truncated = False

    async def send(data: bytes) -> None:
        assert process.stdin is not None
        try:
            await process.stdin.send_all(data)
            await process.stdin.aclose()
        except trio.BrokenResourceError:
            return  # the process need not read all of its input

    async def kill_at_overflow() -> None:
        await process.stderr_overflowed.wait()
        process.ref.cancel()

    async with trio.open_nursery() as nursery:
        if input is not None:
            nursery.start_soon(send, input)
        if kill:
            nursery.start_soon(kill_at_overflow)
        while data := await process.stdout.receive_some():
            truncated = truncated or len(output) + len(data) > output_limit
            output += data[: output_limit - len(output)]
            if truncated and kill:
                process.ref.cancel()
        await process.ref.wait()
        nursery.cancel_scope.cancel()
    return bytes(output), truncated or (kill and process.stderr_overflowed.is_set())


# --- the actor of a process ---------------------------------------------------------------------------------


@asynccontextmanager
async def _ended_confinement(own: Actor, confinement: Confinement | None) -> AsyncIterator[None]:
    """Call `Confinement.end` after the block, even if it fails."""
    try:
        yield
    finally:
        if confinement is not None and not confinement.has_files:
            confinement.end()  # a thread would cost 0.1 ms, as much as a tenth of a whole process
        elif confinement is not None:
            with own.root.shield(FREED_WITHIN):
                await trio.to_thread.run_sync(
                    confinement.end, limiter=own.root.processes.limiter, abandon_on_cancel=True
                )


async def _until_exit_or_stop(own: Actor, child: ChildProcess) -> None:
    async def until_exit(scope: trio.CancelScope) -> None:
        await child.reaper.exited.wait()
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child.pump)
        nursery.start_soon(until_exit, nursery.cancel_scope)
        async for _ in own:
            pass  # mail has no meaning for a process; its input comes through its pipes
        nursery.cancel_scope.cancel()


async def _end(own: Actor, child: ChildProcess, process: Process, confinement: Confinement | None) -> ProcessEnd:
    """End the process and return its end, even if the time for it is too short."""
    end = None
    try:
        with own.cleanup():
            end = await child.end()
            if confinement is not None and end.status is not None:
                # The started program may be a wrapper (bubblewrap), whose exit status encodes that of the real one.
                status = confinement.meaning(end.status)
                end = msgspec.structs.replace(end, status=status, signal=-status if status < 0 else None)
    finally:
        if end is None:
            end = child.leave()
            own.emit(Warned(code="process_left", message=_late(process.argv[0], child.pid, end)))
        process.record_end(end)
    return end


def _late(program: str, pid: int, end: ProcessEnd | None) -> str:
    """Return the message for a process that could not be ended in time; `end` is None if it is still alive."""
    if end is None:
        return f"{program!r} (pid {pid}) did not end in time; SIGKILL was sent, and it is still being ended"
    how = f"exited with status {end.status}" if end.signal is None else f"was ended by signal {end.signal}"
    return f"{program!r} (pid {pid}) {how}; processes that it left behind are still being ended"


# --- one process --------------------------------------------------------------------------------------------


async def _fork(
    processes: Processes,
    command: StartCommand,
    *,
    stdin: Literal["null", "pipe"],
    stdout: Literal["null", "pipe"],
    stop: ProcessStop,
    tail: Tail,
) -> ChildProcess:
    """Start the process. No checkpoint follows once it has started, so a cancelled caller still gets its child.

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
                return ChildProcess(processes, reaper, pid, stop, pipes.streams(), tail)
        except ReaperLost:
            reaper.close()  # and take another one
        except BaseException:  # also when cancelled: the reaper must be given back
            processes.give_back(reaper)
            raise


class _Pipes:
    """Pipes of a process that is about to be started. Ends that were not handed over are closed with the block."""

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

    def streams(self) -> tuple[Input | None, ProcessOutput | None, ProcessOutput]:
        """Return this program's ends. The caller owns them from now on."""
        stdin, stdout, stderr = self._ours
        assert stderr is not None
        self._open = [fd for fd in self._open if fd not in self._ours]
        return (
            None if stdin is None else Input(stdin),
            None if stdout is None else ProcessOutput(stdout),
            ProcessOutput(stderr),
        )

    def _null(self) -> int:
        fd = os.open(os.devnull, os.O_RDWR)
        self._open.append(fd)
        return fd

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._open += ends
        return ends


@final
class ChildProcess:
    """The kernel's side of a process. The code that creates it must call `end` in every case.

    Attributes:
        pid: of the process; also the number of its session and process group.
        reaper: its parent process.
        stdin, stdout: this program's ends of its pipes, if it has them.
        tail: the tail of its stderr.
        stop: grace periods for ending it.
    """

    def __init__(
        self,
        processes: Processes,
        reaper: ReaperLink,
        pid: int,
        stop: ProcessStop,
        streams: tuple[Input | None, ProcessOutput | None, ProcessOutput],
        tail: Tail,
    ) -> None:
        self.pid = pid
        self.reaper = reaper
        self.stdin, self.stdout, self._stderr = streams
        self.tail = tail
        self.stop = stop
        self._processes = processes
        processes.live.add(self)

    async def pump(self) -> None:
        """Read its stderr to the end; an unread pipe would block it after 64 KiB."""
        while data := await self._stderr.receive_soon():
            await self.tail.pump(data)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group, if it lives."""
        if not self.reaper.exited.is_set():
            self.reaper.order("signal", int(number))

    async def end(self) -> ProcessEnd:
        """End the process and its descendants by the steps at the top. The caller shields this and bounds its time."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.pump)
                if self.reaper.exited.is_set():
                    await self._within(LINGER, self._no_writers)
                    await self._sweep(min(SWEEP_GRACE, self.stop.term))
                else:
                    if self.stdout is not None:
                        nursery.start_soon(self.stdout.drain)
                    await self._sweep(await self._make_it_exit())
                nursery.cancel_scope.cancel()
        finally:
            self._close()
        end = self._report()
        self._release_reaper()
        return end

    def leave(self) -> ProcessEnd | None:
        """Stop waiting when the time for `end` is over: return its end, None if it lives. Its reaper continues."""
        self.reaper.order("kill")
        self._processes.start_task(self.end_now)
        return self._report(unswept=True) if self.reaper.exited.is_set() else None

    async def end_now(self) -> None:
        """Kill everything that is left of it, without grace and however long it takes."""
        self.reaper.order("kill")
        await self.reaper.empty.wait()
        self._close()
        self._release_reaper()

    def _release_reaper(self) -> None:
        if self in self._processes.live:
            self._processes.live.remove(self)
            self._processes.give_back(self.reaper)

    def _close(self) -> None:
        if self.stdin is not None:
            self.stdin.end()
        if self.stdout is not None:
            self.stdout.finish()
        self.tail.feed(self._stderr.finish())
        self.tail.close()

    async def _make_it_exit(self) -> float:
        """Take steps 1 to 3; return the seconds that remain of the grace after SIGTERM for its descendants."""
        self.reaper.order("watch")
        if self.stdin is not None:
            self.stdin.end()
            if await self._within(self.stop.eof, self.reaper.exited.wait):
                return min(SWEEP_GRACE, self.stop.term)
        if self.reaper.crowd.is_set():
            return 0.0
        self.send_signal(signal.SIGTERM)
        self.send_signal(signal.SIGCONT)
        until = trio.current_time() + self.stop.term
        await self._within(self.stop.term, self.reaper.exited.wait)
        return max(0.0, until - trio.current_time()) if self.reaper.exited.is_set() else 0.0

    async def _sweep(self, grace: float) -> None:
        """Take step 4: end all descendants, with SIGTERM for `grace` seconds, then with SIGKILL."""
        empty = self.reaper.empty
        if not empty.is_set() and grace > 0:
            self.reaper.order("ask")
            await self._within(grace, empty.wait)
        if not empty.is_set():
            self.reaper.order("kill")
            await empty.wait()

    async def _no_writers(self) -> None:
        outputs = [output for output in (self.stdout, self._stderr) if output is not None]
        pause = LINGER_FIRST
        while any(output.has_writers for output in outputs):  # polled: epoll confuses "no writers" with "data"
            await trio.sleep(pause)
            pause = min(2 * pause, LINGER_POLL)

    async def _within(self, seconds: float, what: Callable[[], Awaitable[None]]) -> bool:
        """Return whether `what` ended in that time. Hurry and a crowd of processes cut the time short."""
        done = False

        async def cut_short(event: trio.Event, scope: trio.CancelScope) -> None:
            await event.wait()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + seconds
            nursery.start_soon(cut_short, self._processes.hurry, nursery.cancel_scope)
            nursery.start_soon(cut_short, self.reaper.crowd, nursery.cancel_scope)
            await what()
            done = True
            nursery.cancel_scope.cancel()
        return done

    def _report(self, *, unswept: bool = False) -> ProcessEnd:
        status = self.reaper.status
        number = -status if status is not None and status < 0 else None
        return ProcessEnd(
            status=status, signal=number, stderr_tail=self.tail.text, swept=self.reaper.swept, unswept=unswept
        )
