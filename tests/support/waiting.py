"""Waiting for a state that another process or task brings about; clocks and open files of tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio
import trio.testing

POLL = 0.002

PATIENCE = 120.0
"""Seconds to wait for a state: far more than a machine ten times slower needs, so only a hang exceeds it."""

READING = 1.0
"""Seconds between the moment a question is on the screen and the keys that answer it.

Keys that come sooner than 0.4 seconds after a question are no answer to it. The program measures from when it has
drawn the question, which a busy machine may do some time after the text has arrived here.
"""


def run_on_mock_clock(function: Callable[..., Any], *, clock: Any = None, instruments: Any = ()) -> Any:
    """`trio.run` on a clock that jumps to the next deadline when all tasks wait."""
    return trio.run(function, clock=clock or trio.testing.MockClock(autojump_threshold=0), instruments=instruments)


async def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Poll `condition` until it is true.

    Raises:
        trio.TooSlowError: it was still false after `seconds`.
    """
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(POLL)


def open_descriptors() -> set[tuple[str, str]]:
    """Return the file descriptors of this process, each with what it refers to (`pipe:[INODE]`, a path).

    A descriptor that is open after a test and was not before is a leak. Numbers of descriptors are not compared:
    garbage collection closes what earlier tests left.
    """
    found = set()
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            found.add((handle.name, str(handle.readlink())))
    return found
