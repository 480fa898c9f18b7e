"""How often a subject may ask: a sliding window of two one-minute buckets.

What counts is the number in this minute, and of the one before as much as the window of sixty seconds still covers.
Beyond the limit a subject has a burst, which comes back within a minute in which it keeps to the limit. Time is
trio's, which no jump of the wall clock moves.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import final

import trio

WINDOW = 60.0
MARGIN = 0.01
"""Seconds added to a retry time, so that it is never too short."""

MOST = 100_000
"""Subjects that are kept in mind; beyond it the one that asked longest ago is forgotten."""


class _Window:
    """One subject's two buckets. `minute` says which minute `now` counts."""

    __slots__ = ("before", "burst", "minute", "now", "seen")

    def __init__(self, minute: int, burst: float, seen: float) -> None:
        self.minute = minute
        self.before = 0.0
        self.now = 0.0
        self.burst = burst
        self.seen = seen


@final
class Rates:
    """The windows of all subjects.

    Args:
        limit: requests of one subject in a minute; 0 for any number.
        burst: how many beyond that.
        clock: seconds that only ever grow.
    """

    def __init__(self, limit: int, burst: int = 0, *, clock: Callable[[], float] = trio.current_time) -> None:
        self.limit = limit
        self.burst = burst
        self._clock = clock
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def charge(self, subject: str, cost: float = 1) -> float:
        """Count a request, or a part of one.

        Returns:
            0 if it may go on; else it is not counted, and may come again after so many seconds.
        """
        if not self.limit:
            return 0.0
        now = self._clock()
        window = self._window(subject, now)
        wait = self._wait(window, now)
        if wait:
            if window.burst < cost:
                return wait
            window.burst -= cost
        window.now += cost
        return 0.0

    def wait(self, subject: str) -> float:
        """How many seconds until the subject may ask; counts nothing, and no burst."""
        if not self.limit or subject not in self._windows:
            return 0.0
        now = self._clock()
        return self._wait(self._window(subject, now), now)

    def current(self) -> Iterator[tuple[str, float]]:
        """What counts of each subject now: the requests of the last minute."""
        now = self._clock() / WINDOW
        minute = math.floor(now)
        for subject, window in self._windows.items():
            if window.minute == minute:
                yield subject, window.before * (1 - (now - minute)) + window.now
            elif window.minute == minute - 1:
                yield subject, window.now * (1 - (now - minute))

    def _window(self, subject: str, now: float) -> _Window:
        """The subject's window with its buckets as they are now, as the latest that asked."""
        minute = math.floor(now / WINDOW)
        window = self._windows.get(subject)
        if window is None:
            self._forget(minute)
            window = self._windows[subject] = _Window(minute, float(self.burst), now)
        if window.minute != minute:
            window.before = window.now if minute == window.minute + 1 else 0
            window.now = 0
            window.minute = minute
        if window.burst < self.burst and not self._wait(window, now):
            window.burst = min(self.burst, window.burst + (now - window.seen) * self.burst / WINDOW)
        window.seen = now
        self._windows.move_to_end(subject)
        return window

    def _wait(self, window: _Window, now: float) -> float:
        gone = now / WINDOW - window.minute
        if window.before * (1 - gone) + window.now < self.limit:
            return 0.0
        if window.now < self.limit:  # this minute will do, once enough of the one before is out of sight
            share = 1 - (self.limit - window.now) / window.before
            return (share - gone) * WINDOW + MARGIN
        share = 1 - self.limit / window.now  # only in the next minute, and then as much of this one as counts
        return (1 - gone + share) * WINDOW + MARGIN

    def _forget(self, minute: int) -> None:
        """Drop subjects without a request for two minutes, and the oldest beyond the bound."""
        while self._windows:
            oldest = next(iter(self._windows))
            if len(self._windows) < MOST and self._windows[oldest].minute >= minute - 1:
                break
            del self._windows[oldest]
