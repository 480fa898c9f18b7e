"""Latency histogram with fixed buckets, cheap enough to be filled all the time (a third of a microsecond per value).

It needs no lock: one thread adds, and other threads may read, which see the state of some moment.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import final

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


@final
class LatencyHistogram:
    """Number of durations per bucket.

    Attributes:
        bounds: upper bounds of the buckets, in seconds; a last bucket holds everything above.
        counts: number of durations in each bucket.
        total: sum of the durations, in seconds.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds: tuple[float, ...] = bounds
        self.counts: list[int] = [0] * (len(bounds) + 1)
        self.total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.counts)
