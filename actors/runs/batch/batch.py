"""The actor of a batch: it plays the decider; each task is a run of its own whose result is kept when it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.effects import RunTask
from ....protocol.errors import CallboardError, ShuttingDown
from ....protocol.events import SCHEMA_VERSION
from ....protocol.messages import BatchBegun, TaskEnded
from ....protocol.outcome import ErrorReport, Outcome
from ...engine.driver import drive
from .decider import BatchDecider, GivenUp
from .journal import Journal, ResultsLost
from .tasks import Task

if TYPE_CHECKING:
    from ....supervisors import Actor

WRITTEN_WITHIN = 10.0
"""Seconds that the disk gets for the results that wait for it when a batch is stopped."""

Perform = Callable[[Task], Awaitable[Outcome]]
"""Runs one task."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A task's end and its result."""

    task: Task
    outcome: Outcome
    seconds: float


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
    batch = _Batch(tasks, perform, journal, target, on_begin, on_end)
    with_vars = frozenset(number for number, task in enumerate(tasks) if task.vars)
    afresh = partial(BatchDecider, max_parallel, max_failures)
    try:
        request = BatchBegun(tasks=len(tasks), with_vars=with_vars)
        given_up: GivenUp | None = await drive(me, afresh, request, {RunTask: batch.run})
    except ShuttingDown:
        return None
    finally:
        if journal.behind:
            with me.root.shield(WRITTEN_WITHIN):  # what has ended is paid for
                await journal.flush()
    return given_up


class _Batch(msgspec.Struct, frozen=True):
    tasks: Sequence[Task]
    perform: Perform
    journal: Journal
    target: str
    on_begin: Callable[[Task], None]
    on_end: Callable[[Ended], None]

    async def run(self, _: Actor, work: RunTask) -> TaskEnded:
        """Body of a task's actor: its run, and its result on disk."""
        task = self.tasks[work.key]
        began = trio.current_time()
        self.on_begin(task)
        try:
            outcome = await self.perform(task)
        except ShuttingDown:
            return TaskEnded(work.key, status="cancelled")
        except CallboardError as error:
            report = ErrorReport.of(error)
            outcome = Outcome(run_id="", status="failed", error=report, exit_code=error.exit_code)
        if outcome.status == "cancelled":
            return TaskEnded(work.key, status="cancelled")
        ended = Ended(task=task, outcome=outcome, seconds=trio.current_time() - began)
        lost: str | None = None
        try:
            await self.journal.keep(_line(ended, self.target), failed=outcome.status == "failed")
        except ResultsLost as error:
            lost = str(error)
        else:
            self.on_end(ended)
            if outcome.unsaved is not None:
                lost = f"{outcome.unsaved}; mend that, and the same command goes on"
        status, error_report = outcome.status, outcome.error
        return TaskEnded(work.key, status=status, error=error_report, exit_code=outcome.exit_code, lost=lost)


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
