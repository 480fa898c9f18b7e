"""Durable runs of a batch's tasks: unfinished runs are resumed after a kill, and no task is done twice.

The id of a run is derived from the file of results, the task's id, and the task's contents. A failed task is retried
by a new run, whose id ends with the number of the attempt. A run is marked as over when its result is on disk
(`first_row`). So for a run that is not over, either there is no result, or the result is stored and only the mark is
missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path

import trio

from ...io.directories import journal_dir
from ...io.tenancy import environ
from ..interrupted import InterruptedRun, interrupted
from .tasks import BatchTask


class TaskRuns:
    """Mapping from tasks to durable runs.

    Args:
        results: the file of results.
        target: the name under which results are stored.
    """

    def __init__(self, results: Path, target: str) -> None:
        self._results = results.absolute()
        self._target = target
        self._known: set[str] = set()
        self._interrupted: dict[str, InterruptedRun] = {}
        self._over: dict[str, Callable[[], None]] = {}

    async def look(self, done: Iterable[BatchTask]) -> None:
        """Find unfinished runs. Remove unfinished runs of tasks that are `done`, because their result is stored."""
        await trio.to_thread.run_sync(partial(self._find_interrupted, list(done)))

    def _find_interrupted(self, done: list[BatchTask]) -> None:
        from ....supervisors.journal.reading import stored_runs
        from ....supervisors.journal.retention import remove_run

        directory = journal_dir(environ())
        self._known = {kept.run for kept in stored_runs(directory)}
        self._interrupted = {run.run: run for run in interrupted(environ())}
        for task in done:
            for id in self._tries(task):
                if id in self._interrupted:
                    remove_run(directory, id)

    def _tries(self, task: BatchTask) -> list[str]:
        ids: list[str] = []
        for number in count(1):
            id = self._id(task, number)
            if id not in self._known:
                return ids
            ids.append(id)
        raise AssertionError("unreachable: it counts for ever")

    def of(self, task: BatchTask) -> tuple[str, bool]:
        """Return the id of the task's run, and whether that run is to be resumed."""
        tries = self._tries(task)
        last = self._interrupted.get(tries[-1]) if tries else None
        if last is not None and not last.why_not:
            return last.run, True
        return self._id(task, len(tries) + 1), False

    def lose(self, run: str) -> None:
        """Forget an unfinished run that cannot be resumed: its task is run from the start."""
        self._interrupted.pop(run, None)

    def holds(self, run: str, over: Callable[[], None]) -> None:
        """Note how to mark a run as over; see `RunCallbacks.holds`."""
        self._over[run] = over

    def kept(self, run: str) -> None:
        """Mark the run as over, because its result is on disk."""
        over = self._over.pop(run, None)
        if over is not None:
            over()

    def _id(self, task: BatchTask, number: int) -> str:
        said = f"{self._results}\0{task.id}\0{task.digest(self._target)}".encode("utf-8", "surrogatepass")
        return f"run-{hashlib.sha256(said).hexdigest()[:16]}" + (f"x{number}" if number > 1 else "")
