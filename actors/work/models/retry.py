"""When to try again, and how long to wait before."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import trio

from ....protocol.errors import ModelError, UpstreamError

FIRST = 0.5
"""Upper bound of the first wait, in seconds; it doubles with every try."""

LONGEST = 30.0
"""Upper bound of every wait that the provider did not ask for."""

PATIENCE = 120.0
"""A provider that asks for a longer wait than this is not waited for."""


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """How often a request is tried, for those who have their own idea of it.

    Attributes:
        most: tries, the first included.
        shortest, longest: seconds between which the waits are; None for `backoff`.
        passes: whether an error may pass by itself; None for those that the gateway takes for such.
    """

    most: int = 3
    shortest: float = 0.0
    longest: float | None = None
    passes: Callable[[ModelError], bool] | None = None

    def may_pass(self, error: ModelError) -> bool:
        """Whether another try may help."""
        return isinstance(error, UpstreamError) if self.passes is None else self.passes(error)

    def wait(self, attempt: int, error: ModelError, rng: random.Random) -> float:
        """Seconds to wait after try number `attempt`; never less than the provider asked for."""
        asked = error.retry_after if isinstance(error, UpstreamError) else None
        if self.longest is None:
            return backoff(attempt, asked, rng)
        bound = min(self.longest, FIRST * 2 ** min(attempt, 30))
        return max(rng.uniform(self.shortest, max(self.shortest, bound)), asked or 0.0)


def backoff(attempt: int, retry_after: float | None, rng: random.Random) -> float:
    """Seconds to wait after try number `attempt` (from 1) failed.

    Full jitter: anything between nothing and the bound, so that a thousand callers that failed together do
    not come back together. What the provider asked for is a minimum, to which the same jitter is added.
    """
    jitter = rng.uniform(0.0, min(LONGEST, FIRST * 2 ** (attempt - 1)))
    return jitter if retry_after is None else retry_after + jitter


def worth_waiting(wait: float, deadline: float | None) -> bool:
    """Whether there is time for another try after that wait. `deadline` is on trio's clock."""
    if wait > PATIENCE:
        return False
    return deadline is None or trio.current_time() + wait < deadline
