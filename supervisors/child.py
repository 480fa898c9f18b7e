"""One operating system process and the ladder it is ended by.

The child leads a session of its own, so that a Ctrl-C in the terminal reaches only us and there is one way for it
to end. When it ended by itself, or has to (its actor is stopped or cancelled), `end` goes down these steps, each
of them bounded:

    1. fail what waits: a pending send to its stdin breaks, its stdout ends for the reader
    2. close its stdin, and go on reading what it writes, or it could not get to the end of its input   eof seconds
    3. SIGTERM to its group, then SIGCONT                                                               term seconds
    4. SIGKILL to its group
    5. sweep: end what is left of its session, whatever carries its token, and their descendants;
       also after a polite exit: SIGTERM, then SIGKILL after a fifth of a second
    6. reap it, tell the guardian, hand over the exit status and the tail of its stderr

A child without a stdin to close starts at step 3. When the root is in a hurry, all graces are skipped; so they are for
a child that uses them to start more and more processes (see `forks`). The leader stays a zombie until step 6, so its
pid can't go to another process and no signal hits a stranger.

A helper that has left session and environment can be told only by its parent, so no parent gets a signal before its
children are known. A full look at `/proc` needs a thread and reads all processes that may be ours. On two processors
with a load of 24 it took longer than `LOOK_WITHIN` in 13 of 360 ends, and a signal that did not wait for it made an
orphan that no later look could find. Steps 3 and 4 therefore stop the group, follow the kernel's lists of children from
every process that is known (`guardian.family`: in this thread, a fraction of a millisecond), remember what they find,
and only then signal. A stopped process neither forks nor exits. A child whose fork had begun before is in the group,
gets the same signal, and has run no code that could hide it. A member of the group that is not known yet, because its
parent has exited since the last look, is stopped and continued only: the sweep looks first and then ends it.

If the time for all this is over before step 5 is done, its group is killed, the exit status is handed over all the same
(`leave`), and the sweep goes on behind (`sweep_on`).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, final

import msgspec
import trio

from .forks import FORKS
from .pipes import Input, Output
from .processes import all_dead
from .spawn import is_dead, wait_for_death
from .tail import Tail

if TYPE_CHECKING:
    from .guardian import Census, Seen
    from .processes import Processes

SWEEP_GRACE = 0.2
"""Seconds that those left behind by a process that ended by itself have between SIGTERM and SIGKILL."""

LINGER = 0.2
"""Seconds that helpers have to finish writing after their leader exited (`sh -c 'work | tee log'`)."""

LINGER_POLL = 0.005

LOOK_WITHIN = 0.2
"""Seconds; a look at `/proc` takes milliseconds, unless the process is out of files."""

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
        """Upper bound of the whole ladder."""
        return self.eof + self.term + LINGER + KILL_WITHIN


QUICK_STOP = ProcessStop(eof=0.2, term=0.2)
"""For what runs inside a turn: a person who interrupts has the prompt back within half a second, also from a program
that ignores SIGTERM."""


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended.

    Attributes:
        status: its exit status, 0 to 255; if a signal ended it, minus the signal's number (as in `subprocess`);
            None if even SIGKILL did not end it in time (it hangs in the kernel; the guardian keeps at it).
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
    """One process. Who makes one (`process._fork`) must call `end` in every case.

    Attributes:
        pid: of the leader; also the number of its session and group.
        start: when it began, see `guardian.Seen`.
        stdin, stdout: our ends of its pipes, if it has them.
        tail: of its stderr.
        token: its own, in its cookie.
        stop: how patiently it is ended.
        killing: whether all that is left of it is being killed. Nothing of it may be continued from then on.
    """

    def __init__(
        self,
        processes: Processes,
        popen: subprocess.Popen[bytes],
        leader: Seen,
        token: str,
        stop: ProcessStop,
        streams: tuple[Input | None, Output | None, Output],
        tail: Tail,
    ) -> None:
        self.pid = leader.pid
        self.start = leader.start
        self.stdin, self.stdout, self._stderr = streams
        self.tail = tail
        self._processes = processes
        self._popen = popen
        self.token = token
        self.stop = stop
        self.killing = False
        self._strays: dict[int, int] = {}
        self._swept: set[int] = set()
        self._at_first: int | None = None  # how many there were when its end began
        self._out_of_hand = trio.Event()

    @property
    def known(self) -> dict[int, int]:
        """Its processes of which a look has told, the leader included: pid -> start."""
        return {self.pid: self.start, **self._strays}

    async def pump(self) -> None:
        """Read its stderr to the end; an unread pipe would block it after 64 KiB."""
        while data := await self._stderr.receive_some():
            self.tail.feed(data)

    async def exited(self) -> None:
        """Wait until the leader has exited, by itself or not."""
        await wait_for_death(self.pid)

    async def end(self) -> ProcessEnd:
        """Have it ended, with everything it left behind; see the module. The caller shields and bounds this."""
        with self._processes.forks.over(self):
            return await self._end()

    async def _end(self) -> ProcessEnd:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.pump)
                if is_dead(self.pid):
                    await self._within(LINGER, self._writers_gone)
                    await self._sweep(min(SWEEP_GRACE, self.stop.term))
                else:
                    if self.stdout is not None:
                        nursery.start_soon(self.stdout.drain)
                    await self._sweep(await self._make_it_exit())
                nursery.cancel_scope.cancel()
            await self._processes.link.forget(self.pid)
        finally:
            self._close()
        self.bury()
        return self._report(self._popen.returncode)

    def leave(self) -> ProcessEnd | None:
        """The time for `end` was over: how it ended, if it did. The sweep goes on without the caller.

        Its group is killed at once, since `end` may not have come to that.
        """
        self.signal_group(signal.SIGKILL)
        self._processes.start_task(self.sweep_on)
        try:
            seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            seen = None
        if seen is None:
            return None
        status = seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
        return self._report(status, unswept=True)

    async def sweep_on(self) -> None:
        """End what `end` did not get to, however long it takes."""
        self.killing = True
        await self._processes.kill_all(self._seized)
        await self._processes.link.forget(self.pid)
        self.bury()

    def bury(self) -> None:
        """Close our ends of its pipes and take its status, if it has ended. Harmless when done before."""
        self._close()
        if self._popen.poll() is not None and self._processes.live.get(self.pid) is self:
            del self._processes.live[self.pid]

    def _close(self) -> None:
        if self.stdin is not None:
            self.stdin.end()
        if self.stdout is not None:
            self.stdout.settle()
        self.tail.feed(self._stderr.settle())
        self.tail.close()

    async def _make_it_exit(self) -> float:
        """Steps 1 to 4; returns what is left of the grace after SIGTERM for the rest of the session."""
        # The full look also shows members of the session that are no descendants any more, and their children.
        await self._within(LOOK_WITHIN, self._look)
        if self.stdin is not None:
            with suppress(OSError):
                self._family()
            self.stdin.end()
            if await self._within(self.stop.eof, self.exited):
                return min(SWEEP_GRACE, self.stop.term)
        if not self._out_of_hand.is_set():
            self._signal_known(signal.SIGTERM)
            self.signal_group(signal.SIGCONT)
            until = trio.current_time() + self.stop.term
            if await self._within(self.stop.term, self.exited):
                return until - trio.current_time()
        self._signal_known(signal.SIGKILL)
        return 0.0

    def _signal_known(self, number: signal.Signals) -> None:
        """Stop its group, remember all descendants, then signal the members of the group that are known.

        The whole group gets the signal if there is no way to look: too many files are open, or the kernel lists no
        children.
        """
        self.signal_group(signal.SIGSTOP)
        try:
            members = [seen for seen in self._family() if seen.group == self.pid and seen.pid != self.pid]
        except OSError:
            self.signal_group(number)
            return
        self._processes.tell(members, number)
        with suppress(OSError):  # it runs as another user
            os.kill(self.pid, number)  # not reaped yet, so the pid is still its own

    def _family(self) -> list[Seen]:
        """Its living processes as far as the kernel's lists of children show them; they are remembered.

        Raises:
            OSError: there is no way to look.
        """
        living = self._processes.family(self.known)
        self._strays.update((seen.pid, seen.start) for seen in living if seen.pid != self.pid)
        return living

    async def _sweep(self, grace: float) -> None:
        """End all that is left of it, politely for `grace` seconds."""
        if not await self._within(grace, self._ask_strays_to_exit):
            self.killing = True
            await self._processes.kill_all(self._seized)

    async def _ask_strays_to_exit(self) -> None:
        told: set[int] = set()
        while left := await self._leftovers():
            new = [seen for seen in left if seen.pid not in told]
            if new:
                await self._processes.halt(new)
                stopped = left  # the group of a new one may hold others
                with suppress(OSError):
                    stopped = self._family()  # what they started after the look is known before they exit
                self._processes.tell(new, signal.SIGTERM)
                self._processes.tell(stopped, signal.SIGCONT)
                told.update(seen.pid for seen in new)
            await all_dead(left)

    async def _seized(self) -> list[Seen]:
        return await self._leftovers(seize=True)

    async def _leftovers(self, *, seize: bool = False) -> list[Seen]:
        left = self.living(await self._processes.census(self.token.encode() if seize else None))
        self._swept.update(seen.pid for seen in left if seen.pid != self.pid)
        return left

    async def _look(self) -> None:
        self._at_first = len(self.living(await self._processes.census()))

    async def _writers_gone(self) -> None:
        outputs = [output for output in (self.stdout, self._stderr) if output is not None]
        while any(output.has_writers for output in outputs):  # noqa: ASYNC110 - epoll can't tell "no writers" from "data"
            await trio.sleep(LINGER_POLL)

    def living(self, census: Census) -> list[Seen]:
        """Its processes in this look. Those seen once are remembered: their parents may be gone at the next one."""
        living = self._processes.living(census, self.token, self.known)
        self._strays.update((seen.pid, seen.start) for seen in living if seen.pid != self.pid)
        return living

    def count_forks(self, now: int) -> bool:
        """It has so many processes now: whether that is too many, as compared with those it had at first."""
        if self._at_first is not None and now - self._at_first > FORKS:
            self._out_of_hand.set()
            return True
        self._at_first = now if self._at_first is None else min(self._at_first, now)
        return False

    async def _within(self, seconds: float, what: Callable[[], Awaitable[None]]) -> bool:
        """Whether `what` was done in that time; hurry cuts it short, and so does `_out_of_hand`."""
        done = False

        async def cut_short(event: trio.Event, scope: trio.CancelScope) -> None:
            await event.wait()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + seconds
            nursery.start_soon(cut_short, self._processes.hurry, nursery.cancel_scope)
            nursery.start_soon(cut_short, self._out_of_hand, nursery.cancel_scope)
            await what()
            done = True
            nursery.cancel_scope.cancel()
        return done

    def signal_group(self, number: signal.Signals) -> None:
        """Signal all of its group."""
        try:
            os.killpg(self.pid, number)
        except OSError:
            return  # all its members run as another user: the sweep will say so

    def _report(self, status: int | None, *, unswept: bool = False) -> ProcessEnd:
        number = -status if status is not None and status < 0 else None
        return ProcessEnd(
            status=status, signal=number, stderr_tail=self.tail.text, swept=len(self._swept), unswept=unswept
        )
