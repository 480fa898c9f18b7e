"""Which durable run a task of a batch is, so that one that was under way at a kill goes on, and none is done twice.

The id of the run follows from the file of results, the task's id and what the task says. A task that has failed is
tried again by a run of its own: its id ends with the number of the try. That a run is over is said when its result is
on the disk (`kept`); so a run that is not has left no result, or its result and only that word is missing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path

import trio

from ...io.directories import journal_dir
from ..interrupted import Interrupted, interrupted
from .tasks import Task


class TaskRuns:
    """See the module.

    Args:
        results: the file of results.
        target: the name that they are kept under.
    """

    def __init__(self, results: Path, target: str) -> None:
        self._results = results.absolute()
        self._target = target
        self._known: set[str] = set()
        self._interrupted: dict[str, Interrupted] = {}
        self._over: dict[str, Callable[[], None]] = {}

    async def look(self, done: Iterable[Task]) -> None:
        """Look for those that were under way; of tasks that are `done` nothing needs to go on."""
        await trio.to_thread.run_sync(partial(self._look, list(done)))

    def _look(self, done: list[Task]) -> None:
        from ....supervisors.journal.reading import kept_runs
        from ....supervisors.journal.retention import remove_run

        directory = journal_dir(os.environ)
        self._known = {kept.run for kept in kept_runs(directory)}
        self._interrupted = {run.run: run for run in interrupted(os.environ)}
        for task in done:
            for id in self._tries(task):
                if id in self._interrupted:
                    remove_run(directory, id)

    def _tries(self, task: Task) -> list[str]:
        ids: list[str] = []
        for number in count(1):
            id = self._id(task, number)
            if id not in self._known:
                return ids
            ids.append(id)
        raise AssertionError("unreachable: it counts for ever")

    def of(self, task: Task) -> tuple[str, bool]:
        """The run that the task is to be, and whether it goes on."""
        tries = self._tries(task)
        last = self._interrupted.get(tries[-1]) if tries else None
        if last is not None and not last.why_not:
            return last.run, True
        return self._id(task, len(tries) + 1), False

    def lose(self, run: str) -> None:
        """This one can't go on: its task begins anew."""
        self._interrupted.pop(run, None)

    def holds(self, run: str, over: Callable[[], None]) -> None:
        """See `Hooks`."""
        self._over[run] = over

    def kept(self, run: str) -> None:
        """The result of this run is on the disk."""
        over = self._over.pop(run, None)
        if over is not None:
            over()

    def _id(self, task: Task, number: int) -> str:
        said = f"{self._results}\0{task.id}\0{task.digest(self._target)}".encode("utf-8", "surrogatepass")
        return f"run-{hashlib.sha256(said).hexdigest()[:16]}" + (f"x{number}" if number > 1 else "")
