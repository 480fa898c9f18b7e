"""A tally: how many of something took how long, in buckets. What is counted all the time and looked at seldom.

Adding costs a third of a microsecond and no lock: one thread adds, others may look, and see a moment's state.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import final

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


@final
class Tally:
    """See the module.

    Attributes:
        bounds: upper bounds of the buckets, in seconds; one bucket more takes what is above.
        counts: how many fell into each bucket.
        total: seconds, all together.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Something took so long."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)
