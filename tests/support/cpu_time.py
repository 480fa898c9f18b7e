"""Speed of the CPU, for tests that bound the CPU time of hostile input."""

from __future__ import annotations

import time

_USUAL = 0.045
"""CPU seconds of `_work` on the machine on which the limits of the tests were measured."""


def slowness() -> float:
    """Return how many times slower than the usual machine this one is now; at least 1.

    Limits in CPU seconds are multiplied by it: otherwise they depend on the speed of the machine.
    """
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        _work()
        best = min(best, time.process_time() - began)
    return max(1.0, best / _USUAL)


def _work() -> int:
    words = [str(number) for number in range(100_000)]
    return len({word[::-1]: len(word) for word in sorted(words)})
