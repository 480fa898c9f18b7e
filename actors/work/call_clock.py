"""The time that a call may take, which stands still while people think."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import trio


class Clock:
    """See the module. A call in a call: the clock of the outer one stands as well while this one does.

    Attributes:
        scope: is cancelled when the time is over.
        seconds: how much there was at the beginning.
    """

    def __init__(self, seconds: float | None) -> None:
        self.scope = trio.CancelScope()
        self.seconds = float("inf") if seconds is None else seconds
        self._left = self.seconds
        self._held = 0
        self._outer = current.get()

    def start(self) -> None:
        """It runs, or runs on."""
        self.scope.deadline = trio.current_time() + self._left

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It stands still for this block. Several blocks may stand within one another, or beside."""
        with contextlib.nullcontext() if self._outer is None else self._outer.stopped():
            if not self._held:
                self._left = self.scope.deadline - trio.current_time()
                self.scope.deadline = float("inf")
            self._held += 1
            try:
                yield
            finally:
                self._held -= 1
                if not self._held:
                    self.start()

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """It begins to run, and is the current one for this block, in which its scope is to be entered."""
        token = current.set(self)
        self.start()
        try:
            yield
        finally:
            current.reset(token)


current: ContextVar[Clock | None] = ContextVar("callboard_call_clock", default=None)
"""The clock of the call that we work in."""
