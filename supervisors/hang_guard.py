"""Ends this process when a stop that a signal has asked for takes too long, whatever the event loop does.

A signal handler may find the program in any state: the event loop blocked, and no memory left. Starting a thread there
would need memory for its stack, which is what is missing. So everything is made beforehand, and the handler only

    1. sets the kernel's timer (`setitimer`), whose SIGALRM ends the process: no thread, no lock and no memory of ours
    2. releases a lock, for which a thread has waited since the root began

The thread is the one that is meant to end the process, since only it can say the exit status; it does so `TIMER_AFTER`
before the timer, which is there for what keeps the thread from running: no memory for its next step, or a call into C
that holds the interpreter's lock. A program that has a use of its own for SIGALRM keeps it, and has only the thread.

Either way their reapers (see `guardian`) end the subprocesses.
"""

from __future__ import annotations

import _thread
import os
import signal
import time
from typing import final

TIMER_AFTER = 0.5
"""Seconds between the thread's turn and the kernel's timer."""

LONGEST_WAIT = 86_400.0
"""Seconds that the thread waits for its lock at once, which has an upper limit."""

GONE_WITHIN = 1.0
"""Seconds for the thread to notice that it is not needed any more."""

NEVER = float("inf")


@final
class HangGuard:
    """See the module. All methods but `_wait` are called in the main thread."""

    def __init__(self) -> None:
        self._bell = _thread.allocate_lock()
        self._gone = _thread.allocate_lock()
        self._seconds = NEVER
        self._status = 0
        self._off = False
        self._has_timer = False

    def start(self) -> None:
        """Get ready; nothing is ended before `end_within` is called."""
        self._bell.acquire()
        self._gone.acquire()
        alarm = signal.getsignal(signal.SIGALRM)
        if alarm == signal.SIG_IGN:  # inherited from the program that executed us; the timer would have no effect
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self._has_timer = alarm in (signal.SIG_DFL, signal.SIG_IGN)
        # Not a threading.Thread: at its exit the interpreter would wait for that one.
        _thread.start_new_thread(self._wait, ())

    def end_within(self, seconds: float, status: int) -> None:
        """End the process with this status after so many seconds; a longer time than was given before is ignored.

        Made for signal handlers: it allocates nothing before the timer is set, and what fails then is left to that.
        """
        if seconds >= self._seconds:
            return
        self._seconds, self._status = seconds, status
        try:
            if self._has_timer:
                signal.setitimer(signal.ITIMER_REAL, seconds)
            if self._bell.locked():
                self._bell.release()
        except (MemoryError, RuntimeError):  # for the timer's old value; a signal in between has released the lock
            return

    def stop(self) -> None:
        """The process goes on: what is left of the guard is taken back."""
        self._off = True
        if self._has_timer and self._seconds != NEVER:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self._bell.locked():
            self._bell.release()
        self._gone.acquire(timeout=GONE_WITHIN)

    def _wait(self) -> None:
        """Body of the thread: one frame, since another would need memory that may be missing."""
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
                continue  # there may be some the next time; if not, there is the timer
        self._gone.release()
