"""The task queue of an agent: what is to be done, what has to wait for what, and who does it.

    pending      nothing stands in its way
    blocked      it waits for other tasks; with a `reason`, one of them has failed and it would wait for ever
    in_progress  an agent works on it
    completed, failed

A task with an `agent` is dispatched as soon as nothing blocks it and there is room for another child, and that agent's
end completes or fails it. Ids are `task_1`, `task_2`, ...; a bare number means the same.

`TaskQueue` is plain data that knows the rules; the conversation that has it (`engine/conversation/team`) starts the
agents.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ....protocol.errors import ToolFailed
from ..tools.tool import Json, shortened

MOST = 1_000
"""Tasks of one queue."""

Status = Literal["pending", "blocked", "in_progress", "completed", "failed"]


class Task(msgspec.Struct, kw_only=True):
    """One task.

    Attributes:
        blocked_by: ids of the tasks that it waits for, completed ones included.
        agent, prompt: who is to do it, and what it is told.
        owner: who works on it: `auto:<agent>` for one that was dispatched, else the id of the agent that took it.
        agent_id: id of that agent.
        reason: why it failed, or why it can't go on.
        output: what the agent that did it said.
        held: it is not dispatched, since its dependencies are not those that were meant.
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

    def shown(self) -> dict[str, Json]:
        """As the model reads it."""
        shown: dict[str, Json] = {"id": self.id, "subject": self.subject, "status": self.status}
        if self.description:
            shown["description"] = self.description
        shown["blocked_by"] = list(self.blocked_by)
        told = {"owner": self.owner, "agent": self.agent, "agent_id": self.agent_id, "reason": self.reason}
        shown.update({name: value for name, value in told.items() if value is not None})
        return shown


class TaskQueue:
    """See the module. Tasks are kept in the order in which they were created."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    @property
    def tasks(self) -> list[Task]:
        """All of them."""
        return list(self._tasks.values())

    def find(self, id: Json) -> Task | None:
        """The task of this id: `task_1`, `1` or 1."""
        return self._tasks.get(id_of(id))

    def create(
        self,
        subject: str,
        *,
        description: str = "",
        blocked_by: Iterable[Json] = (),
        agent: str | None = None,
        prompt: str | None = None,
    ) -> tuple[Task, list[str]]:
        """A new task, and warnings about those of its dependencies that were left out.

        Raises:
            ToolFailed: there can't be such a task.
        """
        if agent and not prompt:
            raise ToolFailed("'prompt' is required when 'agent' is set")
        if len(self._tasks) >= MOST:
            raise ToolFailed(f"the queue has {MOST} tasks, as many as it may")
        task = Task(
            id=f"task_{len(self._tasks) + 1}",
            subject=subject,
            description=description,
            agent=agent or None,
            prompt=prompt,
        )
        self._tasks[task.id] = task
        warnings = self._block(task, blocked_by)
        self._look_again()
        if warnings and task.agent:
            task.held = True
            warnings.append(
                f"'{task.agent}' is not started by itself for {task.id}, since not all that it was to wait for is "
                f"known; start it with agent__spawn and task_id '{task.id}'"
            )
        return task, warnings

    def _block(self, task: Task, blocked_by: Iterable[Json]) -> list[str]:
        """Have a new task wait for others; what is wrong with those it can't wait for.

        Nothing waits for it yet, so no circle can come of it.
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

    def complete(self, task: Task, output: str = "") -> list[Task]:
        """The task is done; those that nothing blocks any more because of that. Also mends a failed one."""
        if task.status == "completed":
            return []
        task.status, task.reason, task.output = "completed", None, output
        return self._look_again()

    def fail(self, task: Task, reason: str = "") -> list[Task]:
        """The task has failed; those that can't go on because of that, however far behind it."""
        if task.status in ("completed", "failed"):
            return []
        before = {other.id for other in self._tasks.values() if other.reason is not None}
        task.status, task.reason = "failed", reason or "it was marked as failed"
        self._look_again()
        return [
            other
            for other in self._tasks.values()
            if other.status == "blocked" and other.reason is not None and other.id not in before
        ]

    def claim(self, task: Task, owner: str, agent_id: str | None = None) -> None:
        """An agent works on it."""
        task.status, task.owner, task.agent_id, task.reason = "in_progress", owner, agent_id, None
        self._look_again()

    @property
    def dispatchable(self) -> list[Task]:
        """Tasks whose agents may be started, oldest first."""
        return [task for task in self._tasks.values() if task.status == "pending" and task.agent and not task.held]

    def results_for(self, task: Task) -> list[Task]:
        """The tasks that it waited for and whose agents said something."""
        return [other for id in task.blocked_by if (other := self._tasks[id]).output]

    def _look_again(self) -> list[Task]:
        """Bring the waiting tasks up to date; those that wait no more. Each waits for older ones only."""
        freed: list[Task] = []
        for task in self._tasks.values():
            if task.status in ("pending", "blocked"):
                before = task.status
                task.status, task.reason = self._standing(task)
                if task.status == "pending" and before == "blocked":
                    freed.append(task)
        return freed

    def _standing(self, task: Task) -> tuple[Status, str | None]:
        waiting: Status = "pending"
        for id in task.blocked_by:
            other = self._tasks[id]
            if other.status == "failed":
                return "blocked", f"{id} failed: {other.reason}"
            if other.status == "blocked" and other.reason is not None:
                return "blocked", f"{id} can't go on ({shortened(other.reason, 500)})"
            if other.status != "completed":
                waiting = "blocked"
        return waiting, None


def id_of(value: Json) -> str:
    """The id that a model means by `task_1`, `1`, `#1`, 1 or 1.0, which is a whole number to JSON."""
    word = str(value).strip().lstrip("#")
    digits = word.removesuffix(".0")
    return f"task_{int(digits)}" if digits.isascii() and digits.isdigit() and len(digits) < 10 else word


def named(value: Json) -> str:
    """The id that is meant, as errors say it."""
    return shortened(id_of(value), 100)
