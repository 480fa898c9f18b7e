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

Keys that come sooner than 0.15 seconds after a question are no answer to it. The program measures from when it has
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


async def jump_when(clock: trio.testing.MockClock, condition: Callable[[], object], seconds: float) -> None:
    """Let time pass as usual until `condition` is true, and then let `seconds` pass at once.

    A long time limit thus expires at a moment that the test chooses, however slow the machine is.
    """
    clock.rate = 1.0
    await until(condition)
    clock.jump(seconds)


def is_written(path: Path) -> bool:
    """Return whether the file has a whole line."""
    return path.exists() and path.read_bytes().endswith(b"\n")


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
