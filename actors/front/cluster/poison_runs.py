"""Poison runs: a run that may have killed workers runs alone of its kind, until it has written a row.

When a worker dies, any of its many runs may be the cause, or none of them, because machines are replaced. So a run that
was in two dead workers, without a new row in between, becomes a suspect. A worker executes one suspect at a time, so
its next death identifies the cause. After three more deaths, the run is parked until a user resumes it. A suspect that
writes a row is acquitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import trio

from ....supervisors.journal.journal import RunJournal

if TYPE_CHECKING:
    from ....supervisors.cluster.queue import Taken
    from ...work.journal.run_journal import JournaledRun

SUSPICIOUS = 2
"""Number of dead workers without a new row from which on a run is a suspect."""

MOST = 5
"""Number of dead workers after which no worker claims the run automatically."""

LOOK_EVERY = 0.01
"""Seconds between two checks for a new row."""


class Suspect:
    """Slot of a worker for its suspect."""

    def __init__(self) -> None:
        self._run = ""

    @property
    def room(self) -> int:
        """Number of suspects that the worker may claim."""
        return 0 if self._run else 1

    def take(self, taken: Taken) -> None:
        """Occupy the slot if the claimed run is a suspect."""
        if taken.suspect:
            self._run = taken.run

    def acquit(self, run: str) -> None:
        """Free the slot, because the run has written a row or has left this worker."""
        if self._run == run:
            self._run = ""

    async def see_it_get_on(self, taken: Taken, kept: Mapping[str, JournaledRun], on_row: Callable[[], None]) -> None:
        """Wait until the suspect writes a row or ends.

        Args:
            taken: the claimed suspect.
            kept: durable runs of this process, by id.
            on_row: called when it has written a row.
        """
        run, before = taken.run, taken.past.kept.rows
        while (own := kept.get(run)) is not None and isinstance(own.rows, RunJournal):
            if own.rows.written > before:
                self.acquit(run)
                on_row()
                return
            own.rows.hurry()
            await trio.sleep(LOOK_EVERY)
