"""Decider of an agent's team: children, the task queue, and questions of children.

A part of the conversation's decider: plain and synchronous. Ids are made of random tokens that the messages carry
(`token`), so that replay makes the same ids.

    agent__spawn, agent__task_*   answered at once; `Spawn` starts children within `max_concurrent_agents`
    agent__collect                answered when the child has ended, or when a child asks a new question
    agent__cancel                 answered when the child has ended, or after `CANCEL_WITHIN`
    agent__reply_escalation       answered when the question is closed, by this answer or by another

Every message re-evaluates the unanswered calls. A call that returns a child's result removes that result. If the
call then fails (an interrupted summary), `call_over` restores it, so that no result is lost.
"""

from __future__ import annotations

import msgspec

from ....protocol import messages
from ....protocol.effects import AnswerCall, CancelChild, Effect, SetTimer, Spawn
from ....protocol.errors import ToolFailed
from ....protocol.outcome import ChildRecord
from ...work.agent.team_state import AgentTask, Escalations, TaskQueue, named
from ...work.agent.tool_families import NAME, read_texts, refused
from ...work.team_messages import UnreadMessages
from ...work.tools.tool import Json, shortened
from ...work.transcript import Record

RESULT_PART = 8_000
"""Most characters of a task's result in the prompts of dependent tasks."""

CANCEL_WITHIN = 30.0
"""Seconds in which a cancelled child must end; the call does not wait for the rest of its clean-up."""

_SUMMARY = 500


class TeamRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on an agent's team, from the agent files.

    Attributes:
        most: most children that run concurrently.
        spawnable: names of the agents that can be children; None for all.
        too_deep: the reason why an agent of this depth can have no children, or None.
    """

    most: int
    spawnable: tuple[str, ...] | None
    too_deep: str | None


class UncollectedChild(msgspec.Struct, eq=False):
    """Child whose result the agent has not collected, with its `task`, if any, and the `letter` about its end."""

    record: ChildRecord
    task: AgentTask | None = None
    letter: messages.TeamMessage | None = None

    @property
    def running(self) -> bool:
        return self.record.status == "running"


class Team:
    """State of an agent's team.

    Args:
        rules: limits.
        record: transcript that lists the children.
        inbox: receives a team message for each child that ends.

    Attributes:
        tasks: the queue.
        escalations: questions of children.
        children: children, running or ended, whose result was not collected, by id in the order of their start.
    """

    def __init__(self, rules: TeamRules, record: Record, inbox: UnreadMessages) -> None:
        self.tasks = TaskQueue()
        self.escalations = Escalations()
        self.children: dict[str, UncollectedChild] = {}
        self._rules = rules
        self._record = record
        self._inbox = inbox
        self._known: set[str] = set()
        self._open: dict[int, messages.FamilyCalled] = {}  # unanswered calls
        self._taken: dict[int, UncollectedChild] = {}  # by the key of the call that returns the result
        self._effects: list[Effect] = []

    @property
    def running(self) -> int:
        """Number of running children."""
        return sum(child.running for child in self.children.values())

    def call(self, message: messages.FamilyCalled) -> list[Effect]:
        """Return the effects of an `agent__*` call: its answer, or none while the call has to wait."""
        self._decide(message)
        return self._wanted()

    def on(self, message: messages.FromBelow | messages.TimerFired) -> list[Effect]:
        """Record an event of a child, or the timer of an `agent__cancel`; return the answers to calls that waited."""
        match message:
            case messages.ChildEnded():
                self._ended(message)
            case messages.EscalationNoted():
                self.escalations.note(message)
            case messages.EscalationClosed():
                self.escalations.close(message.id, answered=message.answered)
            case messages.TimerFired():
                self._not_cancelled(int(message.name))
        # Any event can answer any open call: an end, a new question, a closed question.
        for call in list(self._open.values()):
            self._decide(call)
        return self._wanted()

    def call_over(self, key: int, *, failed: bool) -> None:
        """Forget a call that has ended; if it failed, make the child's result that it removed available again."""
        self._open.pop(key, None)
        child = self._taken.pop(key, None)
        if child is not None and failed:
            self.children[child.record.id] = child
            if child.letter is not None:
                self._inbox.put(child.letter)

    def _wanted(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _decide(self, call: messages.FamilyCalled) -> None:
        try:
            value = self._result(call)
        except ToolFailed as failed:
            self._effects.append(AnswerCall(call.key, str(failed), failed=True))
            return
        if value is None:
            self._open[call.key] = call
        else:
            self._open.pop(call.key, None)
            self._effects.append(AnswerCall(call.key, value))

    def _result(self, call: messages.FamilyCalled) -> Json | None:
        match call.name:
            case "agent__spawn":
                return self._spawn_called(call)
            case "agent__check" | "agent__collect" | "agent__cancel":
                return self._child_called(call)
            case "agent__list":
                return self._listed()
            case "agent__task_create":
                return self._task_created(call)
            case "agent__task_list":
                return {"tasks": [task.as_json() for task in self.tasks.tasks]}
            case "agent__reply_escalation":
                return self._replied(call)
        return self._task_decided(call)

    # --- children -----------------------------------------------------------------------------------------

    def _spawn_called(self, call: messages.FamilyCalled) -> Json:
        arguments = call.arguments
        task, warnings = self._task_of(arguments.get("task_id"))
        name, running, most = arguments["agent"].strip(), self.running, self._rules.most
        problem = self._refusal(name, call.unknown)
        if problem is None and running >= most:
            problem = f"At capacity: {running}/{most} agents running. Wait for one to finish or cancel one."
        if problem is not None:
            return refused(problem)
        id = self._spawn(call.token, name, arguments["prompt"], arguments.get("timeout"), task)
        result: dict[str, Json] = {
            "status": "ok",
            "id": id,
            "agent": name,
            "message": f"'{name}' works in the background. Go on, and get its result with agent__collect.",
        }
        if warnings:
            result["warnings"] = warnings
        return result

    def _refusal(self, agent: str, unknown: str | None) -> str | None:
        """Return the reason why an agent of this name can never be a child, or None."""
        rules = self._rules
        if rules.too_deep is not None:
            return rules.too_deep
        if rules.spawnable is not None and agent not in rules.spawnable:
            there = ", ".join(rules.spawnable) or "none"
            return f"Agent '{shortened(agent, 100)}' may not be spawned; spawnable agents: {there}"
        return unknown if NAME.fullmatch(agent) else f"'{shortened(agent, 100)}' is no name of an agent"

    def _spawn(
        self, token: str, agent: str, prompt: str, timeout: float | None, task: AgentTask | None, owner: str = ""
    ) -> str:
        number = int(token, 16)
        # The token has 32 random bits, so ids can collide.
        while (id := f"agent_{agent}_{number:08x}") in self._known:
            number = (number + 1) % 2**32
        self._known.add(id)
        child = self.children[id] = UncollectedChild(ChildRecord(id=id, agent=agent), task)
        self._record.children.append(child.record)
        if task is not None:
            self.tasks.claim(task, owner or id, id)
        self._effects.append(Spawn(id=id, agent=agent, prompt=prompt, timeout=timeout))
        return id

    def _child_called(self, call: messages.FamilyCalled) -> Json | None:
        asked, opened = call.arguments["id"], call.key in self._open
        child = self.children.get(asked.strip())
        if child is None:  # a concurrent call may have collected it
            return self._not_found(asked)
        record, cancels = child.record, call.name == "agent__cancel"
        about: dict[str, Json] = {"status": "pending", "id": record.id, "agent": record.agent}
        if child.running and call.name == "agent__check":
            counts = {"turns": call.turns, "tool_calls": call.tool_calls}
            return {**about, **counts, "message": "It is still running. agent__collect waits for its end."}
        if child.running and cancels and not opened:
            self._effects += [CancelChild(record.id), SetTimer(str(call.key), CANCEL_WITHIN)]
        # A child may wait for an answer of this agent: a collect that continued to wait would be a deadlock.
        if child.running and not cancels and self.escalations.has_news:
            return {**about, **self.escalations.report()}
        if child.running:
            return None
        if not cancels:
            return self._take(call.key, child)
        if not opened:
            message = "It had ended already; agent__collect has its result."
            return {"status": "ok", "id": record.id, "message": message}
        message = "It was cancelled; `output` is what it had said until then."
        return {**self._take(call.key, child), "status": "ok", "message": message}

    def _not_cancelled(self, key: int) -> None:
        call = self._open.pop(key, None)
        if call is not None:
            id = call.arguments["id"].strip()
            self._effects.append(AnswerCall(key, refused(f"'{id}' was told to end and has not done so yet")))

    def _take(self, key: int, child: UncollectedChild) -> dict[str, Json]:
        """Return and remove the result of a child that has ended."""
        record = child.record
        del self.children[record.id]
        # Until the call has ended, the result can still be restored (`call_over`).
        self._taken[key] = child
        if child.letter is not None:
            # The caller gets the result now; the team message about it would be a duplicate.
            self._inbox.take_back(child.letter)
        result = {
            "status": "completed",
            "id": record.id,
            "agent": record.agent,
            "exit_status": _exit_status(record),
            "output": record.output,
        }
        if child.task is not None:
            result["task_id"] = child.task.id
        return result

    def _listed(self) -> Json:
        agents = [
            {"id": id, "agent": child.record.agent, "status": "running" if child.running else "finished"}
            for id, child in self.children.items()
        ]
        return {"active_count": self.running, "max_concurrent": self._rules.most, "agents": agents}

    def _not_found(self, id: str) -> dict[str, Json]:
        there = ", ".join(self.children) or "none"
        why = "it was collected already" if id.strip() in self._known else "there is no such child"
        return refused(f"Agent '{shortened(id, 100)}' not found: {why}. To be collected: {there}")

    def _ended(self, message: messages.ChildEnded) -> None:
        told = message.record
        child = self.children[told.id]
        for field in told.__struct_fields__:
            setattr(child.record, field, getattr(told, field))
        self._record.failures += [failure.restore() for failure in message.failures]
        task = child.task
        # otherwise the model has decided the task meanwhile
        if task is not None and task.agent_id == told.id and task.status == "in_progress":
            if told.status == "completed":
                self.tasks.complete(task, told.output)
            else:
                self.tasks.fail(task, told.error or f"agent '{told.agent}' was cancelled")
        # A late message arrives after the conversation's end: no model would read the news.
        if not message.late:
            text = told.output if told.status == "completed" else f"{told.status}: {told.error or told.output}"
            payload = messages.TaskCompleted(told.id if task is None else task.id, shortened(text, _SUMMARY))
            child.letter = messages.TeamMessage(sender=told.id, payload=payload, written=message.at)
            self._inbox.put(child.letter)
            self._dispatch(message.token)

    # --- tasks --------------------------------------------------------------------------------------------

    def _dispatch(self, token: str) -> list[AgentTask]:
        """Start agents for unblocked tasks, within the limit; return those tasks."""
        dispatched = []
        room = self._rules.most - self.running
        for task in self.tasks.dispatchable[: max(0, room)]:
            assert task.agent is not None
            assert task.prompt is not None
            results = [
                f"Result of {other.id} ({other.subject}):\n{shortened(other.output, RESULT_PART)}"
                for other in self.tasks.results_for(task)
            ]
            prompt = "\n\n".join([task.prompt, *results])
            self._spawn(token, task.agent, prompt, None, task, owner=f"auto:{task.agent}")
            dispatched.append(task)
        return dispatched

    def _task_of(self, id: Json) -> tuple[AgentTask | None, list[str]]:
        """Return the task for a spawned agent, and warnings about it."""
        if id is None:
            return None, []
        task = self.tasks.find(id)
        if task is None:
            return None, [f"there is no task '{shortened(str(id), 100)}'; the agent works without one"]
        if task.status in ("in_progress", "completed"):
            return None, [f"{task.id} is {task.status.replace('_', ' ')} already; the agent works without a task"]
        return task, []

    def _task_created(self, call: messages.FamilyCalled) -> Json:
        arguments = call.arguments
        agent = (arguments.get("agent") or "").strip()
        problem = self._refusal(agent, call.unknown) if agent and arguments.get("prompt") else None
        if problem:
            return refused(problem)
        try:
            task, warnings = self.tasks.create(
                arguments["subject"],
                description=arguments.get("description") or "",
                blocked_by=_ids(arguments.get("blocked_by")),
                agent=agent or None,
                prompt=arguments.get("prompt"),
            )
        except ToolFailed as failed:
            return refused(str(failed))
        result: dict[str, Json] = {"status": "ok", "task_id": task.id}
        if task.agent:
            result["auto_dispatch"] = task in self._dispatch(call.token)
            if task.agent_id is not None:
                result["agent_id"] = task.agent_id
            # otherwise the model reads `false` as a task that it must start itself
            elif task.reason is None and not task.held:
                result["starts"] = self._starts(task)
        if task.reason is not None:
            warnings.append(f"{task.id} can't go on: {task.reason}")
        if warnings:
            result["warnings"] = warnings
        return result

    def _starts(self, task: AgentTask) -> str:
        """Describe to the model when a task with an agent starts."""
        others = (self.tasks.find(id) for id in task.blocked_by)
        open_ones = [other.id for other in others if other is not None and other.status != "completed"]
        are = "is" if len(open_ones) == 1 else "are"
        when = f"{' and '.join(open_ones)} {are} completed" if open_ones else "one of the agents at work has ended"
        return f"by itself, when {when}"

    def _task_decided(self, call: messages.FamilyCalled) -> Json:
        id = call.arguments["task_id"]
        task = self.tasks.find(id)
        if task is None:
            there = ", ".join(task.id for task in self.tasks.tasks[:50]) or "none"
            return refused(f"Task '{named(id)}' not found; there are: {there}")
        if call.name == "agent__task_fail":
            if task.status == "completed":
                return refused(f"{task.id} is completed and can't fail any more")
            blocked = self.tasks.fail(task, (call.arguments.get("reason") or "").strip())
            dependents = [other.id for other in blocked]
            return {"status": "ok", "message": f"{task.id} has failed", "blocked_dependents": dependents}
        message = "was completed already" if task.status == "completed" else "is completed"
        newly = [other.id for other in self.tasks.complete(task)]
        result: dict[str, Json] = {"status": "ok", "message": f"{task.id} {message}", "newly_runnable": newly}
        dispatched = self._dispatch(call.token)
        if dispatched:
            result["auto_dispatched"] = [
                {"task_id": other.id, "agent": other.agent, "agent_id": other.agent_id} for other in dispatched
            ]
        return result

    # --- questions of children --------------------------------------------------------------------------------

    def _replied(self, call: messages.FamilyCalled) -> Json | None:
        id = call.arguments["escalation_id"].strip()
        if call.key in self._open:
            return self.escalations.replied(id)
        answer = self.escalations.reply(id, call.arguments["reply"])
        if isinstance(answer, dict):
            return answer
        self._effects.append(answer)
        return None


def _exit_status(record: ChildRecord) -> str:
    """Return `Completed`, `Failed("reason")` or `Cancelled`."""
    if record.status == "failed":
        return f"Failed({msgspec.json.encode(shortened(record.error or '', 2_000)).decode()})"
    return "Completed" if record.status == "completed" else "Cancelled"


def _ids(value: Json) -> list[str]:
    if isinstance(value, str) and not value.lstrip().startswith("["):
        return [id for part in value.split(",") if (id := part.strip())]
    return read_texts(value or [], "blocked_by")
