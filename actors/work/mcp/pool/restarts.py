"""When a server that died may be started again. Pure: the clock and the dice are the caller's.

    failures in the window    the next start
    0, 1                      at once
    2, 3, 4, ...              0.5, 1, 2, ... seconds after the last failure, shortened by chance, 30 at most
    `most`                    none for COOLDOWN seconds: calls fail at once. Then one more is tried

That one try decides. Until it has answered a call, one failure more means another COOLDOWN; when it has, all is
forgiven. A failure is a start that came to nothing, or a server's end that we did not ask for.
"""

from __future__ import annotations

import math
import random
from typing import Literal, final

from .....protocol.errors import McpLost
from .....supervisors import Backoff
from .....supervisors.policy import Intensity

COOLDOWN = 30.0
"""Seconds that a server which failed too often is left alone."""

BACKOFF = Backoff(first=0.5, most=30.0, jitter=0.5)

State = Literal["closed", "open", "half-open"]


@final
class Restarts:
    """One server's failures, and what follows from them.

    Args:
        most: failures within `window` seconds that are one too many.
        rand: where the chance comes from.

    Attributes:
        count: starts after a failure.
        down: whether it has failed, and no start followed.
        not_before: when the next start may begin.
    """

    def __init__(self, most: int, window: float, rand: random.Random) -> None:
        self.count = 0
        self.down = False
        self.not_before = 0.0
        self._most = most
        self._window = window
        self._rand = rand
        self._failures = Intensity(most - 1, window)
        self._state: State = "closed"
        self._trying = False
        self._last = ""

    def state(self, now: float) -> State:
        """As a circuit breaker's: `closed` is well."""
        return "half-open" if self._state == "open" and now >= self.not_before else self._state

    def check(self, name: str, now: float) -> None:
        """Raise McpLost, which says when, if no start may be asked for."""
        state = self.state(now)
        if state == "open":
            raise McpLost(
                f"MCP server '{name}' failed {self._most} times within {self._window:g} s and is left alone; "
                f"it is tried again in {math.ceil(self.not_before - now)} s. The last failure: {self._last}"
            )
        if state == "half-open" and self._trying:
            raise McpLost(f"MCP server '{name}' had failed too often and is just being tried again: {self._last}")

    def begin(self, name: str, now: float) -> float:
        """A start is wanted: seconds until it may begin.

        Raises:
            McpLost: as `check`.
        """
        self.check(name, now)
        if self._state == "open":
            self._state = "half-open"
        self._trying = self._state == "half-open"
        if self.down:
            self.count += 1
            self.down = False
        return max(0.0, self.not_before - now)

    def over(self) -> None:
        """The start is done, or was given up unwanted."""
        self._trying = False

    def failed(self, why: str, now: float) -> None:
        """A start came to nothing, or a running server was lost."""
        self._trying = False
        self.down = True
        self._last = why
        if not self._failures.charge(now) or self._state != "closed":
            self._state = "open"
            self.not_before = now + COOLDOWN
        else:
            again = len(self._failures) - 1
            self.not_before = now + (BACKOFF.seconds(again, self._rand.random) if again else 0.0)

    def worked(self) -> None:
        """A call was answered."""
        if self._state == "half-open":
            self.forgive()

    def forgive(self) -> None:
        """Forget all failures: a reload mended it."""
        self._state = "closed"
        self._failures = Intensity(self._most - 1, self._window)
        self.not_before = 0.0
