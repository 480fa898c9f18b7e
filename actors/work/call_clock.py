"""Deadline of a tool call, paused while a user is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import trio


class Clock:
    """Clock of one tool call. If a call contains another, pausing the inner clock pauses the outer one as well.

    Attributes:
        scope: cancel scope whose deadline is the end of the call's time; infinite while the clock is paused.
        seconds: total time of the call; infinite if it has no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self.scope = trio.CancelScope()
        self.seconds = float("inf") if seconds is None else seconds
        self._left = self.seconds
        self._held = 0
        self._outer = current.get()

    def start(self) -> None:
        """Start or resume the clock: set the deadline of `scope` to now plus the remaining time."""
        self.scope.deadline = trio.current_time() + self._left

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Pause the clock for this block. Blocks may be nested or concurrent."""
        with contextlib.nullcontext() if self._outer is None else self._outer.stopped():
            if not self._held:
                # Only the outermost block pauses: blocks may be nested or concurrent.
                self._left = self.scope.deadline - trio.current_time()
                self.scope.deadline = float("inf")
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
                if not self._held:
                    self.start()

    def counting(self) -> Counting:
        """Return a context in which the clock runs and is the current one; enter `scope` inside of it."""
        return Counting(self)


class Counting:
    """Context in which a clock runs.

    A class, because `@contextmanager` makes twice as many calls, and each tool call enters this.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None:
        self._token = current.set(self._clock)
        self._clock.start()

    def __exit__(self, *_: object) -> None:
        current.reset(self._token)


current: ContextVar[Clock | None] = ContextVar("callboard_call_clock", default=None)
"""Clock of the innermost tool call that the current task executes; None outside of calls."""
