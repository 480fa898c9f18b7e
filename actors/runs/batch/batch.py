"""A batch under way: so many tasks at once, each a run of its own, its result kept as soon as it has ended.

A run that fails is a failure of its task and nobody else's. One that is interrupted has no result: it is not done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import msgspec
import trio

from ....protocol.errors import CallboardError, ShuttingDown
from ....protocol.events import SCHEMA_VERSION
from ....protocol.outcome import ErrorReport, Outcome
from .journal import Journal
from .tasks import Task

Perform = Callable[[Task], Awaitable[Outcome]]
"""Runs one task."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a task that has ended."""

    task: Task
    outcome: Outcome
    seconds: float


async def run_batch(
    tasks: Iterable[Task],
    perform: Perform,
    journal: Journal,
    *,
    target: str,
    max_parallel: int,
    on_begin: Callable[[Task], None],
    on_end: Callable[[Ended], None],
) -> None:
    """Run the tasks; returns when all have ended.

    Raises:
        trio.Cancelled: it was interrupted; what has ended is kept.
    """
    queue = iter(tasks)
    async with trio.open_nursery() as nursery:
        for _ in range(max_parallel):
            nursery.start_soon(_work, queue, perform, journal, target, on_begin, on_end)


async def _work(
    queue: Iterator[Task],
    perform: Perform,
    journal: Journal,
    target: str,
    on_begin: Callable[[Task], None],
    on_end: Callable[[Ended], None],
) -> None:
    for task in queue:
        began = trio.current_time()
        on_begin(task)
        try:
            outcome = await perform(task)
        except ShuttingDown:
            return
        except CallboardError as error:
            report = ErrorReport(code=error.code, message=str(error), node=error.node)
            outcome = Outcome(run_id="", status="failed", error=report, exit_code=error.exit_code)
        if outcome.status == "cancelled":
            return
        ended = Ended(task=task, outcome=outcome, seconds=trio.current_time() - began)
        journal.keep(_line(ended, target), failed=outcome.status == "failed")
        on_end(ended)


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
