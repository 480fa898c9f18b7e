"""Tries of one request, all in the task of its caller."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

import trio

from ....protocol.errors import ModelError
from ....supervisors import Backoff, Retry

BACKOFF = Backoff(first=0.5, most=30.0, jitter=1.0)
"""Any wait between nothing and its bound, so that a thousand callers that failed together do not come back together."""

T = TypeVar("T")


async def retried(
    once: Callable[[int], Awaitable[T]],
    retry: Retry,
    *,
    on_wait: Callable[[int, float, ModelError], None],
    rand: Callable[[], float],
    deadline: float = math.inf,
) -> T:
    """What one of the tries returns.

    Each try is made in the caller's own task, and is no actor that a supervisor starts again: so cancelling the caller
    closes its connection at once, and a try costs no task. What follows from a failure the kernel's policy decides.

    Args:
        once: makes one; gets its number, from 1.
        on_wait: told the number of the try that failed, the seconds before the next, and the error.
        rand: source of the jitter, in [0, 1).
        deadline: when it is too late for another one, on trio's clock.

    Raises:
        ModelError: that of the last try; its text says how many there were, if there was more than one.
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
