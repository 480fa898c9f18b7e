"""Waiting for a state that another process or task brings about."""

from __future__ import annotations

from collections.abc import Callable

import trio

POLL = 0.002

PATIENCE = 120.0
"""Seconds to wait for a state: far more than a machine ten times slower needs, so only a hang exceeds it."""


async def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Poll `condition` until it is true.

    Raises:
        trio.TooSlowError: it was still false after `seconds`.
    """
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(POLL)
