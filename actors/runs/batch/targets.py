"""Reads a batch's target once for all tasks; a workflow once per vars, since `${NAME}` is part of its text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import trio

from ....protocol.errors import CallboardError, UsageError
from ....protocol.outcome import Outcome
from ....protocol.problems import Problem
from ....protocol.requests import RunRequest
from ...work.variables import resolve_variables
from ..begin import perform
from ..loading import NO_HOOKS, Hooks
from ..root import Root
from ..target import GraphAgent, Loaded, LoopAgent, WorkflowAgent
from .tasks import Task, refuse

_KEPT = 64
"""Readings of one workflow with different vars."""


class Target:
    """See the module.

    Args:
        request: what holds for all tasks; a task's own variables win.
    """

    def __init__(self, request: RunRequest, root: Root) -> None:
        self._request = request
        self._root = root
        self._with = lru_cache(maxsize=_KEPT)(self._read)
        self._agent: Loaded | None = None
        self._problems: tuple[Problem, ...] | None = None

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What is odd about the target's files, as they were read first."""
        return self._problems or ()

    async def check(self, file: Path, tasks: Sequence[Task]) -> str:
        """The name that results are kept under, if every task can be begun.

        Raises:
            CallboardError: there is no such target, or it has errors of its own.
            InvalidFile: tasks that it can't be given, each with its line.
        """
        if not any(task.vars for task in tasks):
            await self._found(tasks[0])
        problems: list[Problem] = []
        name = str(self._request.target)
        for task in tasks:
            await trio.lowlevel.checkpoint()
            try:
                name = (await self._found(task)).name
            except CallboardError as error:
                told, _, more = str(error).partition("\n")
                message = f"task '{task.id}' can't be begun: {told}"
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

    async def perform(self, task: Task) -> Outcome:
        """One run."""
        agent = await self._found(task)
        attached = tuple(task.attachments)
        flows = isinstance(agent, WorkflowAgent)
        request = msgspec.structs.replace(
            self._request,
            prompt=task.prompt,
            variables={**self._request.variables, **task.vars},
            attach=attached if flows else (),
            files=() if flows else attached,
        )
        return await perform(request, Hooks(loaded=agent), self._root)

    async def _found(self, task: Task) -> Loaded:
        """What this task is for; a workflow is read for each of them, in a thread."""
        if self._agent is not None:
            return self._of(task)
        return await self._root.loader.threaded(lambda: self._of(task))

    def _of(self, task: Task) -> Loaded:
        values = {**self._request.variables, **task.vars}
        agent = self._agent or self._with(tuple(sorted(values.items())))
        if isinstance(agent, WorkflowAgent):
            return agent
        self._agent = agent
        file = agent.graph if isinstance(agent, GraphAgent) else agent.agent
        resolve_variables(agent.name, file.variables, values, os.environ, source=file.source)
        if isinstance(agent, LoopAgent) and not task.prompt.strip() and not task.attachments:
            raise UsageError(f"'{agent.name}' is an LLM agent: it needs a `task` to answer")
        return agent

    def _read(self, values: tuple[tuple[str, str], ...]) -> Loaded:
        request = msgspec.structs.replace(self._request, variables=dict(values))
        agent = self._root.loader.loaded(request, NO_HOOKS)
        if self._problems is None:
            self._problems = agent.problems
        return agent
