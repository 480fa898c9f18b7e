"""How often something is told that a stranger may say as often as it likes."""

from __future__ import annotations

from typing import final

import trio

AT_ONCE = 100
EVERY = 0.1


@final
class Sparingly:
    """True when one more may be told: the first `AT_ONCE` always, later ones when `EVERY` seconds have gone by."""

    def __init__(self) -> None:
        self._told = 0
        self._due = 0.0

    def __call__(self) -> bool:
        """Whether this one may."""
        now = trio.current_time()
        if self._told >= AT_ONCE and now < self._due:
            return False
        self._told += 1
        self._due = now + EVERY
        return True
