"""The supervisor's decisions, as pure code: no tasks, no clock, no I/O.

These are OTP's rules (`supervisor.erl`), in OTP's words, so that they can be held against a model:

    restart     what an ended child means for itself
    permanent   is always started again, also after a normal end
    transient   is started again only after a crash
    temporary   is never started again, not even when a sibling's strategy stopped it

    strategy      whom a restart concerns
    one_for_one   the child alone
    one_for_all   every child
    rest_for_one  the child and those started after it

Restarts are charged *before* each attempt, and a failed attempt is charged like the crash before it: more than
`intensity` charges within `period` seconds, and the supervisor stops its children and gives up.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

Restart = Literal["permanent", "transient", "temporary"]
Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown = Literal["never", "any_significant", "all_significant"]
Verdict = Literal["restart", "keep", "forget"]


def verdict(restart: Restart, *, crashed: bool) -> Verdict:
    """What to do with a child that ended by itself: start it again, keep its spec idle, or forget it."""
    if restart == "permanent" or (restart == "transient" and crashed):
        return "restart"
    return "forget" if restart == "temporary" else "keep"


def concerned(strategy: Strategy, names: Iterable[str], failed: str) -> list[str]:
    """Names of the children to stop and start again for `failed`, in start order (itself included)."""
    order = list(names)
    if strategy == "one_for_one":
        return [failed]
    if strategy == "one_for_all":
        return order
    return order[order.index(failed) :]


def shuts_down(auto: AutoShutdown, *, significant: bool, others_significant_alive: bool) -> bool:
    """Whether a child's own end (not one caused by a sibling or by request) ends the supervisor."""
    if auto == "never" or not significant:
        return False
    return auto == "any_significant" or not others_significant_alive


class Intensity:
    """Counts restarts in a sliding window of `period` seconds."""

    __slots__ = ("_charges", "intensity", "period")

    def __init__(self, intensity: int, period: float) -> None:
        if intensity < 0 or period <= 0:
            raise ValueError(f"intensity must be >= 0 and period > 0, got {intensity} and {period}")
        self.intensity = intensity
        self.period = period
        self._charges: deque[float] = deque()

    def charge(self, now: float) -> bool:
        """Charge one restart; False when that is one too many."""
        self._charges.append(now)
        while self._charges[0] < now - self.period:
            self._charges.popleft()
        return len(self._charges) <= self.intensity

    def __len__(self) -> int:
        return len(self._charges)


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting times between restarts of the same child: `first`, doubling up to `most` seconds.

    Each is multiplied by a random factor between 1 - `jitter` and 1, so that a thousand children that died of
    one cause do not come back in the same instant. The default waits nothing, as OTP does.
    """

    first: float = 0.0
    most: float = 30.0
    jitter: float = 0.5

    def seconds(self, attempt: int, rand: Callable[[], float] = random.random) -> float:
        """Seconds before the `attempt`-th restart (1, 2, ...) in a row."""
        if self.first <= 0:
            return 0.0
        full = min(self.most, self.first * 2.0 ** min(attempt - 1, 60))
        return full * (1 - self.jitter * rand())
