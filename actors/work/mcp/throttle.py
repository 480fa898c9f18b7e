"""Rate limit for log lines and events that untrusted peers cause.

A module of its own, because both `pool` and `tools` need it, and `tools` must not load the pool for it.
"""

from __future__ import annotations

from typing import final

import trio

AT_ONCE = 100
EVERY = 0.1


@final
class Throttle:
    """Rate limiter: the first `AT_ONCE` events pass, each later one only `EVERY` seconds after the last that passed."""

    def __init__(self) -> None:
        self._told = 0
        self._due = 0.0

    def __call__(self) -> bool:
        """Count an event and return True if it may pass."""
        now = trio.current_time()
        if self._told >= AT_ONCE and now < self._due:
            return False
        self._told += 1
        self._due = now + EVERY
        return True
