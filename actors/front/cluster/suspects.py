"""The run of a worker that may have ended workers before: one at a time, until it has written a row.

A worker that dies has many runs, of which one may have been to blame, or none: machines are replaced. So a run that two
workers have died with, without a row of it in between, is played as the only one of its kind. If three more die, it
waits for a person; and if it gets on, it was not to blame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import trio

from ....supervisors.journal.journal import RunJournal

if TYPE_CHECKING:
    from ....supervisors.cluster.queue import Taken
    from ...work.journal.of_run import OfRun

SUSPICIOUS = 2
"""Workers that have died with a run, from which on it is a suspect."""

MOST = 5
"""And after which no worker takes it by itself."""

LOOK_EVERY = 0.01


class Suspect:
    """See the module."""

    def __init__(self) -> None:
        self._run = ""

    @property
    def room(self) -> int:
        """How many more may be taken."""
        return 0 if self._run else 1

    def take(self, taken: Taken) -> None:
        """A run was taken."""
        if taken.suspect:
            self._run = taken.run

    def acquit(self, run: str) -> None:
        """It has got on, or is here no more."""
        if self._run == run:
            self._run = ""

    async def see_it_get_on(self, taken: Taken, kept: Mapping[str, OfRun], on_row: Callable[[], None]) -> None:
        """Wait for the next row of the suspect, or for its end; `kept` are the runs that are played, by their ids."""
        run, before = taken.run, taken.past.kept.rows
        while (own := kept.get(run)) is not None and isinstance(own.rows, RunJournal):
            if own.rows.written > before:
                self.acquit(run)
                on_row()
                return
            own.rows.hurry()
            await trio.sleep(LOOK_EVERY)
