"""Task queue of an agent: tasks, their dependencies, and the agents that work on them.

    pending      ready to start
    blocked      waits for other tasks; with a `reason`, one of them has failed and it would wait forever
    in_progress  an agent works on it
    completed, failed

A task with an `agent` is dispatched as soon as no dependency is open and another child is allowed. That agent's end
completes or fails it. Ids are `task_1`, `task_2`, ...; a bare number is accepted too.

`TaskQueue` is plain data with these rules; its conversation (`engine/conversation/team`) starts the agents.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ....protocol.errors import ToolFailed
from ..tools.tool import Json, shortened

MOST = 1_000
"""Maximum tasks of one queue."""

Status = Literal["pending", "blocked", "in_progress", "completed", "failed"]


class AgentTask(msgspec.Struct, kw_only=True):
    """A task of the queue.

    Attributes:
        blocked_by: ids of the tasks that it depends on, including completed ones.
        agent, prompt: the agent to dispatch, and its prompt.
        owner: `auto:<agent>` for a dispatched task, else the id of the agent that claimed it.
        agent_id: id of that agent.
        reason: why it failed, or why it is blocked forever.
        output: the output of the agent that completed it.
        held: it is not dispatched, because some of its intended dependencies are unknown.
    """

    id: str
    subject: str
    description: str = ""
    blocked_by: list[str] = []
    agent: str | None = None
    prompt: str | None = None
    status: Status = "pending"
    owner: str | None = None
    agent_id: str | None = None
    reason: str | None = None
    output: str = ""
    held: bool = False

    def as_json(self) -> dict[str, Json]:
        """Return the task for the model."""
        shown: dict[str, Json] = {"id": self.id, "subject": self.subject, "status": self.status}
        if self.description:
            shown["description"] = self.description
        shown["blocked_by"] = list(self.blocked_by)
        told = {"owner": self.owner, "agent": self.agent, "agent_id": self.agent_id, "reason": self.reason}
        shown.update({name: value for name, value in told.items() if value is not None})
        return shown


class TaskQueue:
    """All tasks of an agent, in the order of their creation."""

    def __init__(self) -> None:
        self._tasks: dict[str, AgentTask] = {}

    @property
    def tasks(self) -> list[AgentTask]:
        return list(self._tasks.values())

    def find(self, id: Json) -> AgentTask | None:
        """Return the task with this id: `task_1`, `1` or 1."""
        return self._tasks.get(id_of(id))

    def create(
        self,
        subject: str,
        *,
        description: str = "",
        blocked_by: Iterable[Json] = (),
        agent: str | None = None,
        prompt: str | None = None,
    ) -> tuple[AgentTask, list[str]]:
        """Add a task, and return it with warnings about dependencies that were left out.

        Raises:
            ToolFailed: the task is invalid.
        """
        if agent and not prompt:
            raise ToolFailed("'prompt' is required when 'agent' is set")
        if len(self._tasks) >= MOST:
            raise ToolFailed(f"the queue has {MOST} tasks, as many as it may")
        task = AgentTask(
            id=f"task_{len(self._tasks) + 1}",
            subject=subject,
            description=description,
            agent=agent or None,
            prompt=prompt,
        )
        self._tasks[task.id] = task
        warnings = self._block(task, blocked_by)
        self._refresh_waiting()
        if warnings and task.agent:
            # Dispatched now, it would start before one of its intended dependencies.
            task.held = True
            warnings.append(
                f"'{task.agent}' is not started by itself for {task.id}, since not all that it was to wait for is "
                f"known; start it with agent__spawn and task_id '{task.id}'"
            )
        return task, warnings

    def _block(self, task: AgentTask, blocked_by: Iterable[Json]) -> list[str]:
        """Add dependencies to a new task, and return warnings about invalid ones.

        No task depends on the new one yet, so this cannot create a cycle.
        """
        ids = list({id_of(id): None for id in blocked_by})
        warnings = []
        if len(ids) > MOST:
            warnings.append(f"'blocked_by' names {len(ids)} tasks; a queue has {MOST} at most, the others are left out")
        for id in ids[:MOST]:
            if id == task.id:
                warnings.append("A task cannot depend on itself")
            elif id in self._tasks:
                task.blocked_by.append(id)
            else:
                warnings.append(f"Dependency task '{named(id)}' does not exist")
        return warnings

    def complete(self, task: AgentTask, output: str = "") -> list[AgentTask]:
        """Complete a task, even a failed one. Return the tasks that are no longer blocked."""
        if task.status == "completed":
            return []
        task.status, task.reason, task.output = "completed", None, output
        return self._refresh_waiting()

    def fail(self, task: AgentTask, reason: str = "") -> list[AgentTask]:
        """Fail a task. Return all tasks, at any distance, that can no longer start."""
        # A second failure, for example of the agent after the task was marked by hand, must not replace the first
        # reason.
        if task.status in ("completed", "failed"):
            return []
        before = {other.id for other in self._tasks.values() if other.reason is not None}
        task.status, task.reason = "failed", reason or "it was marked as failed"
        self._refresh_waiting()
        return [
            other
            for other in self._tasks.values()
            if other.status == "blocked" and other.reason is not None and other.id not in before
        ]

    def claim(self, task: AgentTask, owner: str, agent_id: str | None = None) -> None:
        """Mark a task as in progress by an agent."""
        task.status, task.owner, task.agent_id, task.reason = "in_progress", owner, agent_id, None
        self._refresh_waiting()

    @property
    def dispatchable(self) -> list[AgentTask]:
        """Tasks whose agents may be started, oldest first."""
        return [task for task in self._tasks.values() if task.status == "pending" and task.agent and not task.held]

    def results_for(self, task: AgentTask) -> list[AgentTask]:
        """Return the tasks that it depended on and whose agents produced output."""
        return [other for id in task.blocked_by if (other := self._tasks[id]).output]

    def _refresh_waiting(self) -> list[AgentTask]:
        """Update the waiting tasks, and return the ones that became ready.

        One pass suffices: tasks depend only on older ones.
        """
        freed: list[AgentTask] = []
        for task in self._tasks.values():
            if task.status in ("pending", "blocked"):
                before = task.status
                task.status, task.reason = self._summary(task)
                if task.status == "pending" and before == "blocked":
                    freed.append(task)
        return freed

    def _summary(self, task: AgentTask) -> tuple[Status, str | None]:
        waiting: Status = "pending"
        for id in task.blocked_by:
            other = self._tasks[id]
            if other.status == "failed":
                return "blocked", f"{id} failed: {other.reason}"
            if other.status == "blocked" and other.reason is not None:
                # The reason passes on through each level, so its length is bounded.
                return "blocked", f"{id} can't go on ({shortened(other.reason, 500)})"
            if other.status != "completed":
                waiting = "blocked"
        return waiting, None


def id_of(value: Json) -> str:
    """Return the id for `task_1`, `1`, `#1`, 1 or 1.0, which is a whole number in JSON."""
    word = str(value).strip().lstrip("#")
    digits = word.removesuffix(".0")
    # Models write ids in all these forms. The length is limited, because `int` of a million digits takes seconds.
    return f"task_{int(digits)}" if digits.isascii() and digits.isdigit() and len(digits) < 10 else word


def named(value: Json) -> str:
    """Return the shortened id for error messages."""
    return shortened(id_of(value), 100)
