"""When to try again, and how long to wait before."""

from __future__ import annotations

import random

import trio

FIRST = 0.5
"""Upper bound of the first wait, in seconds; it doubles with every try."""

LONGEST = 30.0
"""Upper bound of every wait that the provider did not ask for."""

PATIENCE = 120.0
"""A provider that asks for a longer wait than this is not waited for."""


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
