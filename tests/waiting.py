"""Waiting for a state that another process or task brings about."""

from __future__ import annotations

from collections.abc import Callable

import trio

POLL = 0.002

PATIENCE = 120.0
"""Seconds to wait for a state: far more than a machine ten times slower needs, so only a hang exceeds it."""

READING = 1.0
"""Seconds between the moment a question is on the screen and the keys that answer it.

Keys that come sooner than 0.4 seconds after a question are no answer to it. The program measures from when it has
drawn the question, which a busy machine may do some time after the text has arrived here.
"""


async def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Poll `condition` until it is true.

    Raises:
        trio.TooSlowError: it was still false after `seconds`.
    """
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(POLL)
