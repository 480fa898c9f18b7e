"""State of a team's lead: its task queue, and the open questions of its children. Plain data of its conversation.

**Tasks**, with their dependencies and the agents that work on them:

    pending      ready to start
    blocked      waits for other tasks; with a `reason`, one of them has failed and it would wait forever
    in_progress  an agent works on it
    completed, failed

A task with an `agent` is dispatched as soon as no dependency is open and another child is allowed. That agent's end
completes or fails it. Ids are `task_1`, `task_2`, ...; a bare number is accepted too. `TaskQueue` has these rules; the
conversation (`engine/conversation/team`) starts the agents.

**Questions.** A child asks a person, and its question passes its parent on the way to the root. The parent notes it
(`children`). Its model receives the question with the next results and may answer, while the people at the root may
answer as well. The first answer wins. Every agent on the way notes a question, so a grandchild's question has two
possible answering agents. The conversation receives a message for each question (`EscalationNoted`) and for its end
(`EscalationClosed`), and enters them into `Escalations`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ....protocol.effects import AnswerChild
from ....protocol.errors import ToolFailed
from ....protocol.kernel.questions import Question, understood
from ....protocol.messages import EscalationNoted
from ..tools.tool import Json, shortened
from .tool_families import read_texts, refused

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
        """Return the task as the JSON object that the model reads."""
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
            ToolFailed: it has an agent and no prompt, or the queue already has `MOST` tasks.
        """
        if agent and not prompt:
            raise ToolFailed("'prompt' is required when 'agent' is set")
        if len(self._tasks) >= MOST:
            raise ToolFailed(f"the queue already has {MOST} tasks, which is the limit")
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
                f"'{task.agent}' will not be started automatically for {task.id}, because `blocked_by` names "
                f"unknown tasks; start it with agent__spawn and task_id '{task.id}'"
            )
        return task, warnings

    def _block(self, task: AgentTask, blocked_by: Iterable[Json]) -> list[str]:
        """Add dependencies to a new task, and return warnings about invalid ones.

        No task depends on the new one yet, so this cannot create a cycle.
        """
        ids = list({id_of(id): None for id in blocked_by})
        warnings = []
        if len(ids) > MOST:
            warnings.append(f"'blocked_by' names {len(ids)} tasks; a queue has {MOST} at most, so the rest are ignored")
        for id in ids[:MOST]:
            if id == task.id:
                warnings.append("A task cannot depend on itself")
            elif id in self._tasks:
                task.blocked_by.append(id)
            else:
                warnings.append(f"Dependency task '{named(id)}' does not exist")
        return warnings

    def complete(self, task: AgentTask, output: str = "") -> list[AgentTask]:
        """Complete a task, even a failed one. Return the tasks that are no longer blocked because of it."""
        if task.status == "completed":
            return []
        task.status, task.reason, task.output = "completed", None, output
        return self._refresh_waiting()

    def fail(self, task: AgentTask, reason: str = "") -> list[AgentTask]:
        """Fail a task that has not ended. Return the tasks, at any distance, that can no longer start because of it."""
        # A second failure, for example of the agent after the task was marked by hand, must not replace the first
        # reason.
        if task.status in ("completed", "failed"):
            return []
        before = {other.id for other in self._tasks.values() if other.reason is not None}
        task.status, task.reason = "failed", reason or "the task was marked as failed"
        self._refresh_waiting()
        return [
            other
            for other in self._tasks.values()
            if other.status == "blocked" and other.reason is not None and other.id not in before
        ]

    def claim(self, task: AgentTask, owner: str, agent_id: str | None = None) -> None:
        """Mark a task as in progress, whatever its status was."""
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
                return "blocked", f"{id} can't be completed ({shortened(other.reason, 500)})"
            if other.status != "completed":
                waiting = "blocked"
        return waiting, None


def id_of(value: Json) -> str:
    """Return a task's id in the form `task_1`, given `task_1`, `1`, `#1`, 1 or 1.0 (a whole number in JSON)."""
    word = str(value).strip().lstrip("#")
    digits = word.removesuffix(".0")
    # Models write ids in all these forms. The length is limited, because `int` of a million digits takes seconds.
    return f"task_{int(digits)}" if digits.isascii() and digits.isdigit() and len(digits) < 10 else word


def named(value: Json) -> str:
    """Return the shortened id for error messages."""
    return shortened(id_of(value), 100)


INSTRUCTION = (
    "Children wait for an answer to these questions. Answer with agent__reply_escalation where you know the answer; "
    "otherwise ask the user first. A person may answer before you do."
)

_KINDS = {"choice": "ask", "confirm": "confirm", "text": "input", "checkbox": "checkbox"}


class Escalations:
    """Questions of an agent's children, and of agents below those, which the agent may answer.

    Attributes:
        pending: the open ones, oldest first, by the id that the model uses.
    """

    def __init__(self) -> None:
        self.pending: dict[str, EscalationNoted] = {}
        self._told: set[str] = set()
        self._in_round: set[str] = set()
        self._gone: dict[str, str] = {}  # For each closed question: the child that has this agent's answer, or "".

    def note(self, noted: EscalationNoted) -> None:
        """Add a question of a child."""
        self.pending[noted.id] = noted

    def close(self, id: str, *, answered: bool) -> None:
        """Remove a closed question; `answered` by this agent, or by another party."""
        noted = self.pending.pop(id, None)
        if noted is not None:
            self._gone[id] = noted.agent if answered else ""

    @property
    def has_news(self) -> bool:
        """True if a question is open that the model has not seen, because it was noted in this round of calls."""
        return any(id not in self._told for id in self.pending)

    def report(self) -> dict[str, Json]:
        """Return all open questions, as part of a tool result of this round of calls."""
        self._in_round.update(self.pending)
        shown = [_question_as_json(noted) for noted in self.pending.values()]
        return {"pending_escalations": shown, "instruction": INSTRUCTION}

    def notice(self) -> dict[str, Json] | None:
        """Return the open questions to add to the results of a round of calls, and end the round.

        None if one of the results contains them all. Until the end of the round, all calls that wait for news have
        returned because of the same questions.
        """
        told, self._in_round = self._in_round, set()
        self._told.update(self.pending)
        if all(id in told for id in self.pending):
            return None
        notice = self.report()
        self._in_round = set()
        return notice

    def reply(self, id: str, reply: Json) -> AnswerChild | dict[str, Json]:
        """Return the effect that answers a question, or the refusal for the model if it cannot be answered."""
        noted = self.pending.get(id)
        if noted is None:
            if id in self._gone:
                return _closed(id)
            there = ", ".join(self.pending) or "none"
            return refused(f"Escalation '{id[:100]}' not found; pending: {there}")
        try:
            return AnswerChild(noted.question.id, _checked(noted.question, reply))
        except ToolFailed as problem:
            return refused(str(problem))

    def replied(self, id: str) -> dict[str, Json] | None:
        """Return the tool result of a reply to a question; None while the question is still open."""
        if id in self.pending:
            return None
        if not self._gone[id]:
            return _closed(id)
        return {"status": "ok", "message": f"'{self._gone[id]}' has your answer and continues"}


def _question_as_json(noted: EscalationNoted) -> dict[str, Json]:
    question = noted.question
    shown: dict[str, Json] = {
        "escalation_id": noted.id,
        "from": question.actor,
        "agent": noted.agent,
        "question": f"[{_KINDS[question.kind]}] {question.text}",
    }
    if question.options:
        shown["options"] = list(question.options)
    if question.rule:
        shown["rule"] = question.rule
    return shown


def _closed(id: str) -> dict[str, Json]:
    return refused(f"Escalation '{id}' is no longer open: it was answered, withdrawn, or timed out")


def _checked(question: Question, reply: Json) -> str | list[str]:
    """Convert a model's reply to an answer to the question.

    Raises:
        ToolFailed: the reply does not fit the question.
    """
    if question.kind == "checkbox":
        boxes = understood(question, _listed(reply))
        if isinstance(boxes, str):
            # Models list boxes in one text, separated by commas.
            boxes = understood(question, [part.strip() for part in boxes.split(",")])
        return [_option(question, box) for box in boxes]
    if not isinstance(reply, str):
        raise ToolFailed("The reply to this question is one text, not a list")
    value = understood(question, reply)
    assert isinstance(value, str)
    if question.kind == "confirm" and value not in ("yes", "no"):
        raise ToolFailed(f"The reply to a [confirm] question is yes or no, not '{reply[:100]}'")
    return value if question.kind != "choice" or question.free else _option(question, value)


def _listed(reply: Json) -> str | list[str]:
    """Return a list, from a list or its JSON text; any other text unchanged."""
    if isinstance(reply, str) and not reply.lstrip().startswith("["):
        return reply
    return read_texts(reply, "reply")


def _option(question: Question, text: str) -> str:
    if text in question.options:
        return text
    raise ToolFailed(f"'{text[:100]}' is not among the options: {', '.join(question.options)}")
