"""Waiting for what another process, or a task that tells nobody, will do."""

from __future__ import annotations

from collections.abc import Callable

import trio

POLL = 0.002


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Look until it is so.

    Raises:
        trio.TooSlowError: it was not so within the time, which has plenty of slack.
    """
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(POLL)
