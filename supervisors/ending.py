"""Ending several actors at once, within the time that the slowest of them may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from .life import Life


async def end_lives(actors: Sequence[Life]) -> None:
    """Interrupt these and wait until none runs, under one deadline; report those that still do."""
    running = [actor for actor in actors if actor.end is None and actor.dormant is None]
    if not running:
        return
    for actor in running:
        actor.interrupt()
    time = max(actor.time_to_end() for actor in running)
    with trio.move_on_after(time) as limit:
        for actor in running:
            await actor.wait_over()
    if limit.cancelled_caught:
        await trio.lowlevel.checkpoint()  # their own time was up at this very moment: let them unwind
        for actor in running:
            if actor.end is None and actor.dormant is None:
                actor.report_stuck(time)


async def end_together(actors: Sequence[Life]) -> None:
    """As `end_lives`, for good: a supervised one is not left for its supervisor to decide."""
    await end_lives(actors)
    for actor in actors:
        actor.bury()
