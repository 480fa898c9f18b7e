"""Thread pool for tools that are plain functions.

trio's own limiter does not fit, for two reasons. A thread cannot be killed, so a function that hangs holds its slot
after its call has timed out: after forty such functions, no tool of the process starts any more. And the calls of one
run may occupy all slots. Therefore:

- A cancelled call releases its slot at once, whatever its thread does.
- A run gets at most `PER_RUN` slots. A run without any gets one even if all `MOST` are occupied, so hanging runs never
  block another run's first call.

Each event loop has its own pool.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from typing import TypeVar, final

import trio

from ..call_clock import current as call_clock

T = TypeVar("T")

MOST = 64
"""Number of concurrent calls in an event loop from which on only runs without a call are admitted."""

PER_RUN = 32
"""Maximum number of concurrent calls of one run."""


@final
class ToolThreads:
    """Thread pool of one event loop."""

    def __init__(self) -> None:
        self._busy: Counter[str] = Counter()
        self._total = 0
        self._waiting: deque[tuple[str, trio.Event]] = deque()
        self._unlimited = trio.CapacityLimiter(math.inf)  # The limits are enforced by `_admits`, not by trio.

    async def run(self, run: str, function: Callable[[], T]) -> T:
        """Return `function()`, called in a thread on behalf of a run.

        Time spent waiting for a slot does not count for the time limit of the call. If cancelled, this returns at once
        and abandons the thread.
        """
        if self._admits(run):
            self._enter(run)
        else:
            await self._wait(run)
        try:
            return await trio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=self._unlimited)
        finally:
            self._leave(run)

    async def _wait(self, run: str) -> None:
        turn = run, trio.Event()
        self._waiting.append(turn)
        clock = call_clock.get()
        try:
            if clock is None:
                await turn[1].wait()
            else:
                # Waiting for a slot is not the tool's fault, so it does not count for its time limit.
                with clock.stopped():
                    await turn[1].wait()
        except trio.Cancelled:
            if turn[1].is_set():  # Race: the slot was granted in the same moment as the cancellation.
                self._leave(run)
            else:
                self._waiting.remove(turn)
            raise

    def _admits(self, run: str) -> bool:
        busy = self._busy.get(run, 0)
        # A run without a call is always admitted, so that hanging runs cannot block it.
        return not busy or (self._total < MOST and busy < PER_RUN)

    def _enter(self, run: str) -> None:
        self._busy[run] += 1
        self._total += 1

    def _leave(self, run: str) -> None:
        self._busy[run] -= 1
        self._total -= 1
        if not self._busy[run]:
            del self._busy[run]
        for turn in list(self._waiting):
            if self._admits(turn[0]):
                self._waiting.remove(turn)
                self._enter(turn[0])
                turn[1].set()


_pool: trio.lowlevel.RunVar[ToolThreads] = trio.lowlevel.RunVar("callboard_tool_threads")


async def in_tool_thread(run: str, function: Callable[[], T]) -> T:
    """Return `function()`, called in a thread of this event loop's pool; see `ToolThreads.run`."""
    try:
        pool = _pool.get()
    except LookupError:
        _pool.set(pool := ToolThreads())
    return await pool.run(run, function)
