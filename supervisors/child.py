"""One operating system process and the steps it is ended by.

The process leads a session of its own, so that a Ctrl-C in the terminal reaches only us and there is one way for it to
end. When it has ended by itself, or has to (its actor is stopped or cancelled), `end` takes these steps, each bounded:

    1. fail what waits: a pending send to its stdin breaks, its stdout ends for the reader
    2. close its stdin, and go on reading what it writes, or it could not get to the end of its input   eof seconds
    3. SIGTERM to its group, then SIGCONT                                                               term seconds
    4. end what is left of it and of all that it started. If it has ended politely: SIGTERM first, SIGKILL after at most
       `SWEEP_GRACE`
    5. hand over the exit status and the tail of its stderr

A child without a stdin to close starts at step 3. All graces are skipped when the root is in a hurry, and for a child
that uses them to start more and more processes (`guardian.CROWD`).

Steps 3 and 4 are done by the reaper of the process, which knows all descendants by descent (see `guardian`): step 4 is
over when the kernel says that none is left. If the time of the caller is over before that, the exit status is handed
over all the same (`leave`), and the reaper goes on, however long it takes.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, final

import msgspec
import trio

from .pipes import Input, Output
from .tail import Tail

if TYPE_CHECKING:
    from .guardian_link import ReaperLink
    from .processes import Processes

SWEEP_GRACE = 0.2
"""Seconds that those left behind by a process that ended by itself have between SIGTERM and SIGKILL."""

LINGER = 0.2
"""Seconds that helpers have to finish writing after their leader exited (`sh -c 'work | tee log'`)."""

LINGER_POLL = 0.005

KILL_WITHIN = 1.0
"""Seconds for SIGKILL to take effect everywhere, on top of the graces."""


class ProcessStop(msgspec.Struct, frozen=True, kw_only=True):
    """How patiently a process is ended.

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
"""For what runs inside a turn: a person who interrupts has the prompt back within half a second, also from a program
that ignores SIGTERM."""


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended.

    Attributes:
        status: its exit status, 0 to 255; if a signal ended it, minus the signal's number (as in `subprocess`);
            None if even SIGKILL did not end it in time (it hangs in the kernel; its reaper keeps at it).
        signal: number of the signal that ended it, else None.
        stderr_tail: the last 32 KiB of what it wrote to stderr.
        swept: how many processes outlived it and were ended.
        unswept: whether that was not done when its time was over. It goes on.
    """

    status: int | None
    signal: int | None
    stderr_tail: str
    swept: int = 0
    unswept: bool = False


@final
class Child:
    """One process. The caller of `process._fork`, which makes one, must call `end` in every case.

    Attributes:
        pid: of the process; also the number of its session and group.
        reaper: its parent.
        stdin, stdout: our ends of its pipes, if it has them.
        tail: of its stderr.
        stop: how patiently it is ended.
    """

    def __init__(
        self,
        processes: Processes,
        reaper: ReaperLink,
        pid: int,
        stop: ProcessStop,
        streams: tuple[Input | None, Output | None, Output],
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

    async def end(self) -> ProcessEnd:
        """End the process with all it left behind; see the module. The caller shields this and bounds its time."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.pump)
                if self.reaper.exited.is_set():
                    await self._within(LINGER, self._writers_gone)
                    await self._sweep(min(SWEEP_GRACE, self.stop.term))
                else:
                    if self.stdout is not None:
                        nursery.start_soon(self.stdout.drain)
                    await self._sweep(await self._make_it_exit())
                nursery.cancel_scope.cancel()
        finally:
            self._close()
        end = self._report()
        self._let_go()
        return end

    def leave(self) -> ProcessEnd | None:
        """Return how it ended, None if it lives, when the time for `end` is over. Its reaper goes on."""
        self.reaper.order("kill")
        self._processes.start_task(self.end_now)
        return self._report(unswept=True) if self.reaper.exited.is_set() else None

    async def end_now(self) -> None:
        """End what is left, however long it takes."""
        self.reaper.order("kill")
        await self.reaper.empty.wait()
        self._close()
        self._let_go()

    def _let_go(self) -> None:
        if self in self._processes.live:
            self._processes.live.remove(self)
            self._processes.give_back(self.reaper)

    def _close(self) -> None:
        if self.stdin is not None:
            self.stdin.end()
        if self.stdout is not None:
            self.stdout.settle()
        self.tail.feed(self._stderr.settle())
        self.tail.close()

    async def _make_it_exit(self) -> float:
        """Take steps 1 to 3; return the seconds that are left of the grace after SIGTERM for what it started."""
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
        """End all that is left of it, politely for `grace` seconds."""
        empty = self.reaper.empty
        if not empty.is_set() and grace > 0:
            self.reaper.order("ask")
            await self._within(grace, empty.wait)
        if not empty.is_set():
            self.reaper.order("kill")
            await empty.wait()

    async def _writers_gone(self) -> None:
        outputs = [output for output in (self.stdout, self._stderr) if output is not None]
        while any(output.has_writers for output in outputs):  # noqa: ASYNC110 - epoll can't tell "no writers" from "data"
            await trio.sleep(LINGER_POLL)

    async def _within(self, seconds: float, what: Callable[[], Awaitable[None]]) -> bool:
        """Return whether `what` was done in that time. Hurry cuts it short, and so does a crowd of processes."""
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

    def send_signal(self, number: signal.Signals) -> None:
        """Signal all of its group, if it lives."""
        if not self.reaper.exited.is_set():
            self.reaper.order("signal", int(number))

    def _report(self, *, unswept: bool = False) -> ProcessEnd:
        status = self.reaper.status
        number = -status if status is not None and status < 0 else None
        return ProcessEnd(
            status=status, signal=number, stderr_tail=self.tail.text, swept=self.reaper.swept, unswept=unswept
        )
