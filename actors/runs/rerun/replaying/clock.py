"""Clock that only advances when it is set: a replayed run takes its time from its rows."""

from __future__ import annotations

import time

import trio

NEVER = 86_400.0
"""Seconds that trio may sleep: setting the clock wakes it."""


class RowClock(trio.abc.Clock):
    """Clock for `trio.run(..., clock=...)`, which starts at `now` seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._runs_since: float | None = None

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        """Return the seconds since the beginning of the run."""
        if self._runs_since is None:
            return self._now
        return self._now + time.perf_counter() - self._runs_since

    def deadline_to_sleep_time(self, deadline: float) -> float:
        left = deadline - self.current_time()
        if left <= 0:
            return 0.0
        return NEVER if self._runs_since is None else left

    def set(self, seconds: float) -> None:
        """Set the time; it never goes back."""
        self._now = max(self._now, seconds)

    def run_on(self) -> None:
        """Advance like a real clock from now on, so that time limits end tasks that hang at the end."""
        if self._runs_since is None:
            self._runs_since = time.perf_counter()
