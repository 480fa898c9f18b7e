"""Retry loop of a model request."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

import trio

from ....protocol.errors import ModelError
from ....supervisors import Backoff, Retry

BACKOFF = Backoff(first=0.5, most=30.0, jitter=1.0)
"""Backoff with full jitter: a thousand callers that fail together must not retry together."""

T = TypeVar("T")


async def retried(
    once: Callable[[int], Awaitable[T]],
    retry: Retry,
    *,
    on_wait: Callable[[int, float, ModelError], None],
    rand: Callable[[], float],
    deadline: float = math.inf,
) -> T:
    """Call `once` until it succeeds or the retry policy ends the tries, and return its result.

    All tries run in the caller's task, not in an actor that a supervisor restarts. So cancelling the caller closes its
    connection at once, and a try costs no task. The kernel's `Retry` decides whether to try again.

    Args:
        once: makes one try; it receives the number of the try, from 1.
        on_wait: called with the number of the failed try, the seconds before the next, and the error.
        rand: source of the jitter, in [0, 1).
        deadline: time on trio's clock after which no further try starts.

    Raises:
        ModelError: the error of the last try; its text states the number of tries if there were several.
    """
    for attempt in count(1):
        try:
            return await once(attempt)
        except ModelError as error:
            wait = retry.wait(attempt, error, left=deadline - trio.current_time(), rand=rand)
            if wait is None:
                if attempt == 1 or not retry.retryable(error):
                    raise
                raise _spent(error, attempt) from error
            on_wait(attempt, wait, error)
            await trio.sleep(wait)
    raise AssertionError("count() has no end")


def _spent(error: ModelError, attempts: int) -> ModelError:
    told = type(error)(f"{error}, after {attempts} tries")
    told.__dict__.update(error.__dict__)
    return told
