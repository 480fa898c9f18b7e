"""Restart and retry policies, as pure code: no tasks, no clock, no I/O.

    Intensity   limit of restarts within a period
    Backoff     waiting time before the next attempt
    Retry       retries of a failed request: how many, and after which wait
    Breaker     circuit breaker for resources that are started on demand

Supervisors, pools, requests to models, and reconnecting streams use these. The other names are OTP's rules
(`supervisor.erl`), in OTP's words, so that tests can compare them with a model of OTP:

    restart     effect of a child's own end
    permanent   always started again, also after a normal end
    transient   started again only after a crash
    temporary   never started again, not even when a sibling's strategy stopped it

    strategy      children that a restart affects
    one_for_one   the child only
    one_for_all   every child
    rest_for_one  the child and those started after it

Restarts are charged *before* each attempt, and a failed attempt is charged like the crash before it: more than
`intensity` charges within `period` seconds make the supervisor stop its children and give up.
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
    """Decide about a child that ended by itself: start it again, keep its spec without an actor, or forget it."""
    if restart == "permanent" or (restart == "transient" and crashed):
        return "restart"
    return "forget" if restart == "temporary" else "keep"


def concerned(strategy: Strategy, names: Iterable[str], failed: str) -> list[str]:
    """Return the names of the children to restart because `failed` ended, in start order and including it."""
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
        """Charge one restart; return False if that exceeds the limit."""
        self._charges.append(now)
        while self._charges[0] < now - self.period:
            self._charges.popleft()
        return len(self._charges) <= self.intensity

    def __len__(self) -> int:
        return len(self._charges)


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting times between restarts or attempts: `first` seconds, doubling up to `most`.

    Each is shortened by a random share of at most `jitter`, so that a thousand actors that failed for one reason do not
    restart in the same instant; but never below `least` seconds. The default does not wait at all, as OTP.
    """

    first: float = 0.0
    most: float = 30.0
    jitter: float = 0.5
    least: float = 0.0

    def seconds(self, attempt: int, rand: Callable[[], float] = random.random) -> float:
        """Return the seconds to wait before the `attempt`-th restart (1, 2, ...) in a row."""
        if self.first <= 0:
            return self.least
        full = min(self.most, self.first * 2.0 ** min(attempt - 1, 60))
        return self.least + max(0.0, full - self.least) * (1 - self.jitter * rand())


def is_transient(error: BaseException) -> bool:
    """Return whether the error declares itself transient: a retry may succeed."""
    return isinstance(error, CallboardError) and error.transient


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Retry policy: attempts and backoff.

    Attributes:
        most: attempts, the first included.
        backoff: waits between two attempts, on top of the wait that the server asks for (`Retry-After`).
        patience: longest wait in seconds; if a longer one is needed, the error is final.
        retryable: returns whether a retry after this error may succeed.
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
        """Return the seconds to wait after attempt number `attempt` (1, 2, ...) failed; None if `error` is final.

        It is final after `most` attempts, if it is not `retryable`, and if the wait would exceed `patience` or `left`.

        Args:
            left: seconds until the deadline of the whole request.
        """
        if attempt >= self.most or not self.retryable(error):
            return None
        asked = (
            getattr(error, "retry_after", None) or 0.0
        )  # a minimum, set by the server, so the back-off is added to it
        wait = asked + self.backoff.seconds(attempt, rand)
        return wait if wait <= self.patience and wait < left else None


@final
class Breaker:
    """Circuit breaker for a resource that is started on demand.

        failures within `period`    the next start
        0, 1                        at once
        2, 3, 4, ...                after the back-off, counted from the last failure
        `most`                      none for `cooldown` seconds, starts fail at once (`open`); then one attempt

    That attempt decides (`half-open`): another failure before the resource has worked causes another cooldown; once it
    has worked, all failures are forgotten (`closed`). A failure is a start that failed, or an end that was not
    requested.

    Args:
        most: number of failures within `period` seconds that opens the breaker.
        rand: source of the back-off's jitter, in [0, 1).

    Attributes:
        restarts: number of starts after a failure.
        down: True if it has failed and not been started since.
        error: text of the last failure.
        not_before: time (`trio.current_time()`) at which the next start may begin.
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
        self.restarts: int = 0
        self.down: bool = False
        self.error: str = ""
        self.not_before: float = 0.0
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
        """Number of failures within the period."""
        return len(self._failures)

    def state(self, now: float) -> BreakerState:
        """Return the state: `closed` is the normal one."""
        return "half-open" if self._state == "open" and now >= self.not_before else self._state

    def check(self, now: float) -> None:
        """Raise `TooManyRestarts` if no start is allowed now. The caller puts the resource's name before its text."""
        state = self.state(now)
        if state == "open":
            raise TooManyRestarts(
                f"failed {self._most} times within {self._period:g} s, so it is not used for now; the "
                f"next attempt is in {math.ceil(self.not_before - now)} s. The last failure: "
                f"{self.error}"
            )
        if state == "half-open" and self._trying:
            raise TooManyRestarts(
                f"failed too often, and another attempt is in progress. The last failure: {self.error}"
            )

    def begin(self, now: float) -> float:
        """Register a start and return the seconds until it may begin.

        Raises:
            TooManyRestarts: no start is allowed now, see `check`.
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
        """Register that the start is complete, or was abandoned because no lease needs it any more."""
        self._trying = False

    def failed(self, error: str, now: float) -> None:
        """Register a failed start, or the loss of the running resource."""
        self._trying = False
        self.down = True
        self.error = error
        if not self._failures.charge(now) or self._state != "closed":
            self._state = "open"
            self.not_before = now + self._cooldown
        else:
            retries = len(self._failures) - 1
            self.not_before = now + (self._backoff.seconds(retries, self._rand) if retries else 0.0)

    def worked(self) -> None:
        """Register that the started resource has worked once. In the state `half-open` this forgets all failures."""
        if self._state == "half-open":
            self.forgive()

    def forgive(self) -> None:
        """Forget all failures: their cause was removed."""
        self._state = "closed"
        self._failures = Intensity(self._most - 1, self._period)
        self.not_before = 0.0
