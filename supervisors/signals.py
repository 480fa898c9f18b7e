"""Signals of a root: what Ctrl-C, SIGTERM and SIGHUP do, and a guard that ends the process if the event loop hangs.

The handlers are installed with `signal.signal`, not as trio's signal receiver: they run even while a task keeps the
event loop busy.

    first    stop admitting work, interrupt the tree, give every actor its time to clean up
    second   skip what remains of those times (`root.hurry`)
    third    end the process at once

With `on_drain` the first SIGINT or SIGTERM calls that instead, and the others count from the next one.

**The guard.** A signal handler may find the program in any state: the event loop blocked, and no memory left. Starting
a thread in the handler would need memory for its stack, and there may be none. So everything is prepared beforehand.
The handler only

    1. sets the kernel's timer (`setitimer`), whose SIGALRM ends the process: this needs no thread, lock or memory
    2. releases a lock, for which a thread has waited since the root began

The thread is the one that should end the process, since only it can set the exit status. It does so `TIMER_AFTER`
before the timer. The timer covers what keeps the thread from running: no memory for its next step, or a call into C
that holds the interpreter's lock. A program that uses SIGALRM itself keeps its handler, and has only the thread.

Either way the reapers (see `guardian`) end the subprocesses.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol, final

import trio

from ..protocol.kernel.errors import ActorError
from .user_code import failure_of

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

HURRY_WITHIN = 0.3
"""Seconds that remain after the second Ctrl-C: enough to kill and to reap."""

LOOP_HANGS = 1.0
"""Seconds beyond the deadline after which the guard ends a signalled process that still runs."""

TIMER_AFTER = 0.5
"""Seconds between the thread's turn and the kernel's timer."""

LONGEST_WAIT = 86_400.0
"""Seconds that the thread waits for its lock at once; `acquire` has an upper limit for its timeout."""

GONE_WITHIN = 1.0
"""Seconds for the thread to end when the guard is stopped."""

NEVER = float("inf")

log = logging.getLogger("callboard.root")


class Stoppable(Protocol):
    """A root as its signal handlers see it.

    Attributes:
        signal: the first signal that made the root stop or drain; None before.
        hurry: set by the second signal.
        stop_within: seconds for a stop.
        drain_within: seconds from the first signal to the stop, if the root drains.
    """

    signal: int | None
    stop_within: float
    drain_within: float
    hurry: trio.Event

    def begin_stop(self) -> None: ...
    def tighten(self, deadline: float) -> None: ...


@final
class SignalHandlers:
    """The signal handlers of one root. `Root` documents the arguments."""

    def __init__(
        self,
        root: Stoppable,
        *,
        on_signal: Callable[[int, int], None] | None,
        on_hangup: Callable[[], None] | None,
        hangup_ends: Callable[[], bool] | None,
        on_drain: Callable[[], None] | None,
    ) -> None:
        self._root = root
        self._on_signal = on_signal
        self._on_hangup = on_hangup
        self._hangup_ends = hangup_ends
        self._on_drain = on_drain
        self._count = self._drained = 0
        self._guard = HangGuard()
        self._stop_limit = self._drain_limit = NEVER  # computed by `installed`: the handler must not allocate memory
        self._token: trio.lowlevel.TrioToken | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Own SIGINT, SIGTERM and SIGHUP while the block lasts.

        Raises:
            ActorError: this is not the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            raise ActorError("Root(signals=True) works in the main thread only, where Python delivers signals")
        self._token = trio.lowlevel.current_trio_token()
        # nohup starts a program with SIGHUP ignored, so that it outlives the terminal. A reload does not contradict
        # that.
        deaf = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN and self._on_hangup is None
        self._stop_limit = self._root.stop_within + LOOP_HANGS
        self._drain_limit = self._root.drain_within + self._stop_limit
        self._guard.start()
        before = {
            number: signal.signal(number, self._handle) for number in SIGNALS if not (number == signal.SIGHUP and deaf)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._guard.stop()

    @contextlib.contextmanager
    def draining(self, on_drain: Callable[[], None], within: float) -> Iterator[None]:
        """Call `on_drain` at the first signal that would stop the root, while the block lasts; see `Root.draining`."""
        before = self._on_drain, self._drain_limit
        self._drain_limit = within + self._stop_limit
        self._on_drain = on_drain
        try:
            yield
        finally:
            self._on_drain, self._drain_limit = before

    def limit_stop(self) -> None:
        """Arm the guard: from now on the stop that a signal has requested has its time, and no more."""
        assert self._root.signal is not None
        self._guard.end_within(self._stop_limit, 128 + self._root.signal)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # Runs in the main thread between two bytecodes, wherever the program is, perhaps without any memory left.
        # So the guard is armed before anything that may fail.
        root = self._root
        if number == signal.SIGHUP == root.signal:
            return  # closing a terminal sends it more than once: from the kernel, and from the shell
        ends = self._hangup_ends
        if number == signal.SIGHUP and self._on_hangup is not None and not (ends is not None and ends()):
            self._soon(_call_back, self._on_hangup)
            return
        if self._on_drain is not None and root.signal is None:
            root.signal = number
            self._guard.end_within(self._drain_limit, 128 + number)
            self._drained = 1
            self._soon(self._drain, self._on_drain, number)
            return
        self._count += 1
        if root.signal is None:
            root.signal = number
        self.limit_stop()
        if self._count >= 3:
            os._exit(128 + root.signal)
        self._soon(self._react, number, self._count)

    def _soon(self, call: Callable[..., object], *args: object) -> None:
        """Call this in the event loop. Without memory for that, the guard ends the process."""
        assert self._token is not None
        with contextlib.suppress(trio.RunFinishedError, MemoryError):
            self._token.run_sync_soon(call, *args)

    def _drain(self, call: Callable[[], None], number: int) -> None:
        if self._on_signal is not None:
            _call_back(self._on_signal, number, 1)
        _call_back(call)

    def _react(self, number: int, count: int) -> None:
        if self._on_signal is not None:
            _call_back(self._on_signal, number, self._drained + count)
        self._root.begin_stop()
        if count > 1:
            self._root.hurry.set()
            self._root.tighten(trio.current_time() + HURRY_WITHIN)


def _call_back(call: Callable[..., object], *args: object) -> None:
    """Call a callback of the root's owner. An exception would end the event loop without stopping the tree."""
    try:
        call(*args)
    except BaseException as error:  # logged; the signal has its effect all the same
        failure_of(error)
        log.exception("a callback of the root raised")


@final
class HangGuard:
    """Ends the process when a stop takes too long. All methods but `_wait` are called in the main thread."""

    def __init__(self) -> None:
        self._bell = _thread.allocate_lock()
        self._gone = _thread.allocate_lock()
        self._seconds = NEVER
        self._status = 0
        self._off = False
        self._has_timer = False

    def start(self) -> None:
        """Prepare the thread and the timer. The process is not ended before `end_within` is called."""
        self._bell.acquire()
        self._gone.acquire()
        alarm = signal.getsignal(signal.SIGALRM)
        if alarm == signal.SIG_IGN:  # inherited from the program that executed us; the timer would have no effect
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self._has_timer = alarm in (signal.SIG_DFL, signal.SIG_IGN)
        # Not a threading.Thread: the interpreter waits for those at its exit.
        _thread.start_new_thread(self._wait, ())

    def end_within(self, seconds: float, status: int) -> None:
        """End the process with this status in `seconds`. A time longer than an earlier one is ignored.

        Safe in signal handlers: it allocates nothing before the timer is set, and the timer covers a later failure.
        """
        if seconds >= self._seconds:
            return
        self._seconds, self._status = seconds, status
        try:
            if self._has_timer:
                signal.setitimer(signal.ITIMER_REAL, seconds)
            if self._bell.locked():
                self._bell.release()
        # MemoryError: for the timer's previous value. RuntimeError: a signal in between has released the lock.
        except (MemoryError, RuntimeError):
            return

    def stop(self) -> None:
        """Disarm the guard: cancel the timer and end the thread."""
        self._off = True
        if self._has_timer and self._seconds != NEVER:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self._bell.locked():
            self._bell.release()
        self._gone.acquire(timeout=GONE_WITHIN)

    def _wait(self) -> None:
        # Body of the thread. One frame only: a further call would need memory that may be missing.
        seconds = deadline = NEVER
        while True:
            try:
                while not self._off:
                    now = time.monotonic()
                    if self._seconds != seconds:
                        seconds = self._seconds
                        deadline = min(deadline, now + seconds - TIMER_AFTER)
                    if now >= deadline:
                        os._exit(self._status)
                    self._bell.acquire(timeout=min(deadline - now, LONGEST_WAIT))
                break
            except MemoryError:
                continue  # there may be memory the next time; if not, the timer ends the process
        self._gone.release()
