"""A clock that stands still until it is set: that of a run which is replayed, by the times of its rows."""

from __future__ import annotations

import time

import trio

NEVER = 86_400.0
"""Seconds that trio may sleep for: it is woken when the clock is set."""


class RowClock(trio.abc.Clock):
    """See the module. Made for `trio.run(..., clock=...)`; it stands at `now` seconds at first."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._runs_since: float | None = None

    def start_clock(self) -> None:
        """See `trio.abc.Clock`."""

    def current_time(self) -> float:
        """Seconds since the beginning of the run."""
        if self._runs_since is None:
            return self._now
        return self._now + time.perf_counter() - self._runs_since

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """See `trio.abc.Clock`."""
        left = deadline - self.current_time()
        if left <= 0:
            return 0.0
        return NEVER if self._runs_since is None else left

    def set(self, seconds: float) -> None:
        """It is so late now; it never goes back."""
        self._now = max(self._now, seconds)

    def run_on(self) -> None:
        """From now on it goes like any other: so that what hangs at the end has an end."""
        if self._runs_since is None:
            self._runs_since = time.perf_counter()
