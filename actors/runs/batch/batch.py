"""A batch under way: so many tasks at once, each a run of its own, its result kept as soon as it has ended.

A run that fails is a failure of its task and nobody else's. One that is interrupted has no result: it is not done.
What would fail the same way for all of them, a key that is missing, a model nobody knows, ends the batch when the first
of them has found it out; so does a number of failures, if somebody has named one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.errors import CallboardError, ConfigError, ShuttingDown
from ....protocol.events import SCHEMA_VERSION
from ....protocol.outcome import ErrorReport, Outcome
from .journal import Journal, ResultsLost
from .tasks import Task

if TYPE_CHECKING:
    from ....supervisors import Actor

WRITTEN_WITHIN = 10.0
"""Seconds that the disk gets for the results that wait for it when a batch is stopped."""

ALIKE = 5
"""Tasks with vars of their own that lack a key or a setting, before it is taken for what all of them lack."""

Perform = Callable[[Task], Awaitable[Outcome]]
"""Runs one task."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a task that has ended."""

    task: Task
    outcome: Outcome
    seconds: float


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """Why a batch has not begun all of its tasks.

    Attributes:
        error: the failure that was one too many.
        shared: it would be every task's.
    """

    error: ErrorReport
    shared: bool


async def run_batch(
    me: Actor,
    tasks: Sequence[Task],
    perform: Perform,
    journal: Journal,
    *,
    target: str,
    max_parallel: int,
    on_begin: Callable[[Task], None],
    on_end: Callable[[Ended], None],
    max_failures: int | None = None,
) -> GivenUp | None:
    """Run the tasks; returns when all have ended, or when it has given up and those under way have ended.

    Args:
        max_failures: it gives up after so many.

    Returns:
        Why it has given up; None if all have had their turn.

    Raises:
        ResultsLost: what came of a task can't be written down.
        trio.Cancelled: it was interrupted; what has ended is kept.
    """
    batch = _Batch(tasks, perform, journal, target, on_begin, on_end, max_failures)
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(min(max_parallel, len(tasks))):
                nursery.start_soon(batch.work, nursery.cancel_scope)
    finally:
        if journal.behind:
            with me.root.shield(WRITTEN_WITHIN):  # what has ended is paid for
                await journal.flush()
    if batch.lost is not None:
        raise batch.lost
    return batch.given_up


class _Batch:
    """Workers take the tasks one after the other from one line.

    Attributes:
        given_up: why no more of them are begun.
        lost: why results can't be written down any more; those under way are interrupted then.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        perform: Perform,
        journal: Journal,
        target: str,
        on_begin: Callable[[Task], None],
        on_end: Callable[[Ended], None],
        max_failures: int | None,
    ) -> None:
        self.given_up: GivenUp | None = None
        self.lost: ResultsLost | None = None
        self._queue = iter(tasks)
        self._perform = perform
        self._journal = journal
        self._target = target
        self._on_begin = on_begin
        self._on_end = on_end
        self._max_failures = max_failures
        self._done = 0
        self._failed = 0

    async def work(self, all_of_them: trio.CancelScope) -> None:
        for task in self._queue:
            began = trio.current_time()
            self._on_begin(task)
            try:
                outcome = await self._perform(task)
            except ShuttingDown:
                return
            except CallboardError as error:
                report = ErrorReport.of(error)
                outcome = Outcome(run_id="", status="failed", error=report, exit_code=error.exit_code)
            if outcome.status == "cancelled":
                return
            ended = Ended(task=task, outcome=outcome, seconds=trio.current_time() - began)
            try:
                await self._journal.keep(_line(ended, self._target), failed=outcome.status == "failed")
            except ResultsLost as error:
                self.lost = error
                all_of_them.cancel()
                return
            self._on_end(ended)
            if outcome.unsaved is not None:
                self.lost = ResultsLost(f"{outcome.unsaved}; mend that, and the same command goes on")
                all_of_them.cancel()
                return
            self._judge(task, outcome)
            if self.given_up is not None:
                return

    def _judge(self, task: Task, outcome: Outcome) -> None:
        """Whether to go on after this one."""
        if outcome.error is None:
            self._done += 1
            return
        self._failed += 1
        # A task with vars of its own may be the only one; so many are no chance.
        enough = ALIKE if task.vars else 1
        shared = outcome.exit_code == ConfigError.exit_code and not self._done and self._failed >= enough
        if self.given_up is None and (shared or self._failed == self._max_failures):
            self.given_up = GivenUp(error=outcome.error, shared=shared)


def _line(ended: Ended, target: str) -> dict[str, Any]:
    wire = ended.outcome.to_wire()
    return {
        "schema_version": SCHEMA_VERSION,
        "id": ended.task.id,
        "digest": ended.task.digest(target),
        "status": wire["status"],
        "output": wire["output"],
        "error": wire["error"],
        "run_id": wire["run_id"],
        "seconds": round(ended.seconds, 3),
        "usage": wire["usage"],
    }
