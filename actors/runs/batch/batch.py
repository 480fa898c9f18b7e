"""Actor of a batch: it drives the decider. Each task is a run of its own, whose result is stored when it ends."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.effects import RunTask
from ....protocol.errors import CallboardError, ShuttingDown, UsageError
from ....protocol.events import SCHEMA_VERSION
from ....protocol.journal import BATCH
from ....protocol.kernel.errors import Damaged
from ....protocol.messages import BatchBegun, TaskEnded
from ....protocol.outcome import ErrorReport, Outcome
from ....protocol.problems import Problem
from ....protocol.requests import RunRequest
from ...engine.driver import drive
from ...io.tenancy import environ
from ...work.variables import resolve_variables
from ..begin import perform as perform_run
from ..durable import CannotGoOn, play, take
from ..loading import NO_HOOKS, RunCallbacks
from ..root import Root
from ..target import GraphAgent, Loaded, LoopAgent, WorkflowAgent
from .decider import BatchDecider, GivenUp
from .journal import BatchJournal, ResultsLost, TaskRuns
from .tasks import BatchTask, refuse

if TYPE_CHECKING:
    from ....supervisors import Actor

_KEPT = 64
"""Cached readings of one workflow with different `vars`."""

WRITTEN_WITHIN = 10.0
"""Seconds for the disk to store pending results when a batch is stopped."""

log = logging.getLogger("callboard.journal")

Perform = Callable[[BatchTask], Awaitable[Outcome]]
"""Function that runs one task."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """End of a task, with its result."""

    task: BatchTask
    outcome: Outcome
    seconds: float


async def run_batch(
    me: Actor,
    tasks: Sequence[BatchTask],
    perform: Perform,
    journal: BatchJournal,
    *,
    target: str,
    max_parallel: int,
    on_begin: Callable[[BatchTask], None],
    on_end: Callable[[Ended], None],
    max_failures: int | None = None,
    mark_over: Callable[[str], None] = lambda _: None,
) -> GivenUp | None:
    """Run the tasks. Return when all have ended, or, after giving up, when those already begun have ended.

    Args:
        mark_over: called for each run whose result is on disk.
        max_failures: number of failures after which the batch gives up.

    Returns:
        The reason for giving up; None if every task has been run.

    Raises:
        ResultsLost: the result of a task cannot be stored.
        trio.Cancelled: the batch was interrupted; results of ended tasks are stored.
    """
    batch = _Batch(tasks, perform, journal, target, on_begin, on_end, mark_over)
    with_vars = frozenset(number for number, task in enumerate(tasks) if task.vars)
    afresh = partial(BatchDecider, max_parallel, max_failures)
    try:
        request = BatchBegun(tasks=len(tasks), with_vars=with_vars)
        given_up: GivenUp | None = await drive(me, afresh, request, {RunTask: batch.run})
    except ShuttingDown:
        return None
    finally:
        if journal.behind:
            with me.root.shield(WRITTEN_WITHIN):  # Ended tasks have been paid for.
                await journal.flush()
    return given_up


class _Batch(msgspec.Struct, frozen=True):
    tasks: Sequence[BatchTask]
    perform: Perform
    journal: BatchJournal
    target: str
    on_begin: Callable[[BatchTask], None]
    on_end: Callable[[Ended], None]
    mark_over: Callable[[str], None]

    async def run(self, _: Actor, work: RunTask) -> TaskEnded:
        """Run a task and store its result on disk: the body of the task's actor."""
        task = self.tasks[work.key]
        began = trio.current_time()
        self.on_begin(task)
        try:
            outcome = await self.perform(task)
        # The root is ending: the task did not fail, and the next call runs it.
        except ShuttingDown:
            return TaskEnded(work.key, status="cancelled")
        except CallboardError as error:
            report = ErrorReport.of(error)
            outcome = Outcome(run_id="", status="failed", error=report, exit_code=error.exit_code)
        # A cancelled run has no result: the task is run again by the next call.
        if outcome.status == "cancelled":
            return TaskEnded(work.key, status="cancelled")
        ended = Ended(task=task, outcome=outcome, seconds=trio.current_time() - began)
        lost: str | None = None
        try:
            await self.journal.store(_line(ended, self.target), failed=outcome.status == "failed")
        except ResultsLost as error:
            lost = str(error)
        else:
            self.mark_over(outcome.run_id)
            self.on_end(ended)
            if outcome.save_error is not None:
                lost = (
                    f"{outcome.save_error}. Fix this, then run the same command again: it "
                    "continues with the remaining tasks"
                )
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


class BatchTarget:
    """Target of a batch, read once for all tasks. A workflow is read once per `vars`, because `${NAME}` is part of its
    text.

    Args:
        request: options of all tasks; a task's own variables override its variables.
        hooks: callbacks of each run.

    Attributes:
        runs: the durable run of each task; None if runs are not durable.
    """

    def __init__(self, request: RunRequest, root: Root, hooks: RunCallbacks = NO_HOOKS) -> None:
        self._request = request
        self._hooks = hooks
        self._root = root
        self._with = lru_cache(maxsize=_KEPT)(self._read)
        self._agent: Loaded | None = None
        self._problems: tuple[Problem, ...] | None = None
        self.runs: TaskRuns | None = None

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The warnings about the target's files, from their first reading."""
        return self._problems or ()

    async def check(self, file: Path, tasks: Sequence[BatchTask]) -> str:
        """Return the name under which results are stored, after checking that every task can begin.

        Raises:
            CallboardError: the target does not exist, or has errors of its own.
            InvalidFile: tasks that do not fit the target, each with its line.
        """
        if not any(task.vars for task in tasks):
            # An error of the target itself is raised once, and not reported for each task.
            await self._found(tasks[0])
        problems: list[Problem] = []
        name = str(self._request.target)
        for task in tasks:
            await trio.lowlevel.checkpoint()
            try:
                name = (await self._found(task)).name
            except CallboardError as error:
                told, _, more = str(error).partition("\n")
                message = f"task '{task.id}' can't be started: {told}"
                problems.append(
                    Problem(
                        severity="error",
                        file=str(file),
                        code="unfit_task",
                        message=message,
                        line=task.line,
                        column=1,
                        hint=more or None,
                    )
                )
        refuse(file, problems)
        return name

    async def resume_earlier(self, results: Path, name: str, done: Sequence[BatchTask]) -> None:
        """Find tasks that an earlier batch left unfinished when it was killed, if its runs are durable.

        Args:
            results: the file of results.
            name: the name under which the results are stored.
            done: tasks that have a result there.
        """
        if self._hooks.durable is not False:
            self.runs = TaskRuns(results, name)
            await self.runs.find_unfinished(done)

    async def perform(self, task: BatchTask) -> Outcome:
        """Run one task; resume its run if an earlier batch was killed during it."""
        hooks, id = self._hooks, self._request.id
        if self.runs is not None:
            id, goes_on = self.runs.of(task)
            hooks = msgspec.structs.replace(hooks, holds=self.runs.holds)
            if goes_on:
                try:
                    # Resumed and not run again: the work so far is paid for.
                    return await play(self._root, await take(self._root, id, by=BATCH), hooks)
                except (CannotGoOn, Damaged) as error:
                    log.warning("task '%s' starts again from its beginning: %s", task.id, error)
                    self.runs.forget(id)
                    id, _ = self.runs.of(task)
        agent = await self._found(task)
        attached = tuple(task.attachments)
        flows = isinstance(agent, WorkflowAgent)
        request = msgspec.structs.replace(
            self._request,
            prompt=task.prompt,
            variables={**self._request.variables, **task.vars},
            attach=attached if flows else (),
            files=() if flows else attached,
            id=id,
        )
        return await perform_run(request, msgspec.structs.replace(hooks, loaded=agent), self._root)

    def mark_over(self, run: str) -> None:
        """Mark the run as over, because its result is on disk."""
        if self.runs is not None:
            self.runs.mark_over(run)

    async def _found(self, task: BatchTask) -> Loaded:
        if self._agent is not None:
            return await self._root.vault.ready(lambda: self._of(task))
        return await self._root.loader.threaded(lambda: self._of(task))

    def _of(self, task: BatchTask) -> Loaded:
        values = {**self._request.variables, **task.vars}
        agent = self._agent or self._with(tuple(sorted(values.items())))
        if isinstance(agent, WorkflowAgent):
            return agent
        self._agent = agent
        # Checked for every task before the first runs: a task with a missing variable would fail an hour later.
        file = agent.graph if isinstance(agent, GraphAgent) else agent.agent
        vault = self._root.vault
        resolve_variables(agent.name, file.variables, values, environ(), secrets=vault, source=file.source)
        if isinstance(agent, LoopAgent) and not task.prompt.strip() and not task.attachments:
            raise UsageError(f"'{agent.name}' is an LLM agent and needs a prompt: give each row a `task`")
        return agent

    def _read(self, values: tuple[tuple[str, str], ...]) -> Loaded:
        request = msgspec.structs.replace(self._request, variables=dict(values))
        agent = self._root.loader.loaded(request, NO_HOOKS)
        if self._problems is None:
            self._problems = agent.problems
        return agent
