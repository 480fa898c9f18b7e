"""Decisions about what has failed, as pure code: no tasks, no clock, no I/O.

    Intensity   how many restarts are too many
    Backoff     how long to wait before the next one
    Retry       whether a request that failed is made again, and when
    Breaker     when something that is started on demand may be started again after it failed

Supervisors, pools, requests to models, and streams that are opened again all decide by these. The rest is OTP's rules
(`supervisor.erl`), in OTP's words, so that they can be held against a model:

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

import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, final

import msgspec

from ..protocol.kernel.errors import CallboardError, TooManyRestarts

Restart = Literal["permanent", "transient", "temporary"]
Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
AutoShutdown = Literal["never", "any_significant", "all_significant"]
Verdict = Literal["restart", "keep", "forget"]
BreakerState = Literal["closed", "open", "half-open"]


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
    """Waiting times between restarts, or tries, of the same thing: `first`, doubling up to `most` seconds.

    Each is shortened by a random part, `jitter` of it at most, so that a thousand that failed of one cause do not come
    back in the same instant; but never below `least` seconds. The default waits nothing, as OTP does.
    """

    first: float = 0.0
    most: float = 30.0
    jitter: float = 0.5
    least: float = 0.0

    def seconds(self, attempt: int, rand: Callable[[], float] = random.random) -> float:
        """Seconds before the `attempt`-th restart (1, 2, ...) in a row."""
        if self.first <= 0:
            return self.least
        full = min(self.most, self.first * 2.0 ** min(attempt - 1, 60))
        return self.least + max(0.0, full - self.least) * (1 - self.jitter * rand())


def is_transient(error: BaseException) -> bool:
    """Whether the error says of itself that another try may help."""
    return isinstance(error, CallboardError) and error.transient


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often something that fails is tried, and how long to wait in between.

    Attributes:
        most: tries, the first included.
        backoff: waits between two tries, beyond what the other side asks for.
        patience: seconds; a longer wait is not worth it.
        retryable: whether another try may help.
    """

    most: int = 3
    backoff: Backoff = Backoff()
    patience: float = 120.0
    retryable: Callable[[BaseException], bool] = is_transient

    def wait(
        self,
        attempt: int,
        error: BaseException,
        *,
        left: float = math.inf,
        rand: Callable[[], float] = random.random,
    ) -> float | None:
        """Seconds to wait after try number `attempt` (1, 2, ...) failed with `error`; None for no other try.

        Args:
            left: seconds until it is too late.
        """
        if attempt >= self.most or not self.retryable(error):
            return None
        asked = getattr(error, "retry_after", None) or 0.0  # by the other side: a minimum, so the jitter is added
        wait = asked + self.backoff.seconds(attempt, rand)
        return wait if wait <= self.patience and wait < left else None


@final
class Breaker:
    """A circuit breaker: when something that is started on demand may be started again after it failed.

        failures within `period`    the next start
        0, 1                        at once
        2, 3, 4, ...                after the back-off, counted from the last failure
        `most`                      none for `cooldown` seconds, starts fail at once (`open`); then one more is tried

    That one try decides (`half-open`). Until what it started has worked, one failure more means another cooldown; when
    it has, all is forgiven (`closed`). A failure is a start that came to nothing, or an end that was not asked for.

    Args:
        most: failures within `period` seconds that are one too many.
        rand: source of the back-off's jitter, in [0, 1).

    Attributes:
        restarts: starts after a failure.
        down: whether it has failed, and no start followed.
        error: the last failure, in words.
        not_before: when the next start may begin.
    """

    def __init__(
        self,
        *,
        most: int = 5,
        period: float = 60.0,
        backoff: Backoff = Backoff(first=0.5),  # noqa: B008 - frozen
        cooldown: float = 30.0,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.restarts = 0
        self.down = False
        self.error = ""
        self.not_before = 0.0
        self._most = most
        self._period = period
        self._backoff = backoff
        self._cooldown = cooldown
        self._rand = rand
        self._failures = Intensity(most - 1, period)
        self._state: BreakerState = "closed"
        self._trying = False

    @property
    def failures(self) -> int:
        """How many there were within the period."""
        return len(self._failures)

    def state(self, now: float) -> BreakerState:
        """`closed` is well."""
        return "half-open" if self._state == "open" and now >= self.not_before else self._state

    def check(self, now: float) -> None:
        """Raise TooManyRestarts, which says when, if no start may be asked for. Its text lacks a subject."""
        state = self.state(now)
        if state == "open":
            raise TooManyRestarts(
                f"failed {self._most} times within {self._period:g} s and is left alone; "
                f"it is tried again in {math.ceil(self.not_before - now)} s. The last failure: {self.error}"
            )
        if state == "half-open" and self._trying:
            raise TooManyRestarts(f"had failed too often and is just being tried again: {self.error}")

    def begin(self, now: float) -> float:
        """A start is wanted: seconds until it may begin.

        Raises:
            TooManyRestarts: as `check`.
        """
        self.check(now)
        if self._state == "open":
            self._state = "half-open"
        self._trying = self._state == "half-open"
        if self.down:
            self.restarts += 1
            self.down = False
        return max(0.0, self.not_before - now)

    def over(self) -> None:
        """The start is done, or was given up unwanted."""
        self._trying = False

    def failed(self, error: str, now: float) -> None:
        """A start came to nothing, or what runs was lost."""
        self._trying = False
        self.down = True
        self.error = error
        if not self._failures.charge(now) or self._state != "closed":
            self._state = "open"
            self.not_before = now + self._cooldown
        else:
            again = len(self._failures) - 1
            self.not_before = now + (self._backoff.seconds(again, self._rand) if again else 0.0)

    def worked(self) -> None:
        """What was started has done its work once."""
        if self._state == "half-open":
            self.forgive()

    def forgive(self) -> None:
        """Forget all failures: something was done about them."""
        self._state = "closed"
        self._failures = Intensity(self._most - 1, self._period)
        self.not_before = 0.0
