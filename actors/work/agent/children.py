"""The children of an agent: agents that it spawned and that run beside it.

All live under one supervisor below the agent's actor, each in an actor of its own that is called by the child's id:

    /run-7f3a/sisyphus/children/agent_explore_1a2b3c4d/explore

They are never restarted, and their failures are theirs: the parent reads of them when it collects. What a child has
said is kept wherever it ends (`Record`). The end of the parent ends them all.

`Children` belongs to the parent's actor. Its tool calls are actors too and all use it, but nothing here is left
half-changed across an `await`: a place is taken before the child is started, a result before it is summarized. Nobody
polls; who waits sleeps until a child ends or asks something.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ....protocol.agent import Agent
from ....protocol.errors import ShuttingDown, TimedOut
from ....protocol.permissions import Permissions
from ....supervisors.ref import describe
from ....supervisors.supervisor import ChildSpec, Supervisor
from ..context import AgentCall
from ..letters import Letter, PostOffice, Seat, TaskCompleted
from ..record import ChildRecord, Record
from ..tools.rendering import shortened
from .child import Child, Refused
from .summary import summarized
from .tasks import Task, TaskQueue

if TYPE_CHECKING:
    from ....supervisors import Actor, End
    from ..context import RunContext
    from ..tools.tool import Json
    from .escalations import Escalations

RESULT_PART = 8_000
"""Characters of the result of one task that are passed on to the agents of those that waited for it."""

CANCEL_WITHIN = 30.0
"""Seconds in which a cancelled child has to be gone; the rest of its clean-up is not waited for."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SUMMARY = 500


class Children:
    """See the module.

    Args:
        me: the parent's actor.
        agent: the parent.
        context: the run.
        permissions: what the parent's file says; what they deny is denied to the children too.
        depth: how many agents stand above the parent.
        near: the parent's directory.
        seat: the parent's own place; its inbox gets the children's letters.
        record: the parent's record, which lists the children.
        escalations: where the children's questions are noted.

    Attributes:
        office: where the parent and the children write to each other.
        tasks: the queue to take work from, if there is one.
    """

    def __init__(
        self,
        me: Actor,
        agent: Agent,
        context: RunContext,
        *,
        permissions: Permissions | None = None,
        depth: int,
        near: Path,
        seat: Seat,
        record: Record,
        escalations: Escalations,
    ) -> None:
        self.agent = agent
        self.office = PostOffice(seat.inbox)
        self.tasks: TaskQueue | None = None
        self.escalations = escalations
        self._me = me
        self._context = context.below(permissions or {}, agent.max_agent_depth)
        self._depth = depth
        self._near = near
        self._inbox = seat.inbox
        self._record = record
        self._children: dict[str, Child] = {}
        self._site: Supervisor | None = None
        self._opening = trio.Lock()
        self._changed = trio.Event()
        escalations.attach(self._child_at, self._ring)

    @property
    def running(self) -> int:
        """How many children work at the moment."""
        return sum(child.running for child in self._children.values())

    @property
    def uncollected(self) -> list[Child]:
        """Children whose results were not taken, running or not, in the order of their start."""
        return list(self._children.values())

    # --- starting -----------------------------------------------------------------------------------------

    def refusal(self, agent: str) -> str | None:
        """Why an agent of this name can never be a child, or None."""
        too_deep = self._context.too_deep(self._depth + 1)
        if too_deep is not None:
            return too_deep
        allowed = self.agent.spawnable_agents
        if allowed is not None and agent not in allowed:
            there = ", ".join(allowed) or "none"
            return f"Agent '{shortened(agent, 100)}' may not be spawned; spawnable agents: {there}"
        if not _NAME.fullmatch(agent):
            return f"'{shortened(agent, 100)}' is no name of an agent"
        return self._context.unknown_agent(agent, self._near)

    async def available(self) -> list[tuple[str, str]]:
        """The agents that may be children, each with its description."""
        found = await trio.to_thread.run_sync(self._context.agents_near, self._near)
        allowed = self.agent.spawnable_agents
        return [(name, description) for name, description in found if allowed is None or name in allowed]

    async def spawn(
        self, agent: str, prompt: str, *, timeout: float | None = None, task: Task | None = None, owner: str = ""
    ) -> Child:
        """Start a child.

        Args:
            timeout: seconds after which it is ended.
            task: is completed or failed by its end; claimed for `owner`, or for the child's id.

        Raises:
            Refused: it may not be started, or there is no room.
            ShuttingDown: the parent is ending.
        """
        running, most = self.running, self.agent.max_concurrent_agents
        problem = self.refusal(agent)
        if problem is None and running >= most:
            problem = f"At capacity: {running}/{most} agents running. Wait for one to finish or cancel one."
        if problem is not None:
            raise Refused(problem)
        id = self._new_id(agent)
        record = ChildRecord(id=id, agent=agent)
        seat = self.office.seat(id)
        child = Child(record=record, work=Record(), seat=seat, prompt=prompt, timeout=timeout, task=task)
        self._children[id] = child
        if task is not None and self.tasks is not None:
            self.tasks.claim(task, owner or id, id)
        try:
            site = await self._open_site()
            child.ref = await site.start_child(ChildSpec(name=id, body=self._play, args=(child,), restart="temporary"))
        except BaseException:  # cancelled too: its place is given back
            self._forget_unstarted(child)
            raise
        self._record.children.append(record)
        child.ref.on_end(lambda end: self._ended(child, end))
        return child

    async def dispatch(self) -> list[Task]:
        """Start the agents of the tasks that nothing blocks, while there is room; those tasks."""
        dispatched = []
        while self.tasks is not None and self.running < self.agent.max_concurrent_agents:
            task = next(iter(self.tasks.dispatchable), None)
            if task is None:
                break
            assert task.agent is not None
            assert task.prompt is not None
            try:
                await self.spawn(task.agent, self._prompt_of(task), task=task, owner=f"auto:{task.agent}")
            except Refused as problem:
                self.tasks.fail(task, str(problem))
            else:
                dispatched.append(task)
        return dispatched

    async def _open_site(self) -> Supervisor:
        async with self._opening:
            if self._site is None:
                site = Supervisor()
                await self._me.start(site, name="children")
                self._site = site
            return self._site

    async def _play(self, actor: Actor, child: Child) -> str:
        """Body of a child's actor."""
        child.path = actor.path
        call = AgentCall(
            name=child.record.agent,
            prompt=child.prompt,
            variables={},
            depth=self._depth + 1,
            near=self._near,
            context=self._context,
            record=child.work,
            seat=child.seat,
            escalation_timeout=self.agent.escalation_timeout,
        )
        if child.timeout is None:
            return await self._context.run_agent(actor, call)
        with trio.move_on_after(child.timeout):
            return await self._context.run_agent(actor, call)
        raise TimedOut(f"Agent '{child.record.agent}' did not end within its {child.timeout:g} s")

    def _prompt_of(self, task: Task) -> str:
        """What the agent of a task is told: its prompt, and what came of the tasks it waited for."""
        assert self.tasks is not None
        assert task.prompt is not None
        results = [
            f"Result of {other.id} ({other.subject}):\n{shortened(other.output, RESULT_PART)}"
            for other in self.tasks.results_for(task)
        ]
        return "\n\n".join([task.prompt, *results])

    def _new_id(self, agent: str) -> str:
        while True:
            id = f"agent_{agent}_{secrets.token_hex(4)}"
            if not self.office.knows(id):
                return id

    def _forget_unstarted(self, child: Child) -> None:
        del self._children[child.id]
        self.office.leave(child.id)
        if child.task is not None and self.tasks is not None:
            self.tasks.release(child.task)
        self._ring()

    # --- ending -------------------------------------------------------------------------------------------

    def _ended(self, child: Child, end: End) -> None:
        """A child's actor has ended, whatever it came to."""
        try:
            self._write_down(child, end)
        finally:
            self._ring()  # else a parent that waits for this child would wait for ever

    def _write_down(self, child: Child, end: End) -> None:
        record = child.record
        if end.reason == "normal":
            record.status, record.output, child.answered = "completed", str(end.value), True
            if child.work.failures:  # the run has them as well: what was not accepted in a file is not accepted here
                record.status, record.error = "failed", str(child.work.failures[0])
                self._record.failures += child.work.failures
        elif end.error is not None:
            record.status, record.error = "failed", describe(end.error)
        else:
            record.status = "cancelled"
        child.look()
        self.office.leave(child.id)
        self._settle_task(child)
        if not self._me.stopping:
            child.letter = self._news_of(child)
            self._inbox.put(child.letter)
            if self.tasks is not None and self.tasks.dispatchable:
                with contextlib.suppress(ShuttingDown):
                    self._me.spawn(self._dispatch_later, name="dispatch", link=False)

    async def _dispatch_later(self, _: Actor) -> None:
        """Body of a short-lived actor: a place is free, and who found out can't start anybody himself."""
        with contextlib.suppress(ShuttingDown):
            await self.dispatch()

    def _settle_task(self, child: Child) -> None:
        task, record = child.task, child.record
        if self.tasks is None or task is None or task.agent_id != child.id or task.status != "in_progress":
            return  # nobody's task, or somebody has decided about it meanwhile
        if record.status == "completed":
            self.tasks.complete(task, record.output)
        else:
            self.tasks.fail(task, record.error or f"agent '{record.agent}' was cancelled")

    def _news_of(self, child: Child) -> Letter:
        record = child.record
        text = record.output if record.status == "completed" else f"{record.status}: {record.error or record.output}"
        task_id = child.id if child.task is None else child.task.id
        payload = TaskCompleted(task_id=task_id, summary=shortened(text, _SUMMARY))
        return Letter(sender=child.id, payload=payload, written=datetime.now(UTC))

    def _ring(self) -> None:
        """Wake those who wait for anything to change."""
        self._changed.set()
        self._changed = trio.Event()

    def _child_at(self, path: str) -> str | None:
        for child in self._children.values():
            if child.path and (path == child.path or path.startswith(child.path + "/")):
                return child.id
        return None

    # --- what the parent sees of them ---------------------------------------------------------------------

    def find(self, id: str) -> Child | None:
        """The uncollected child of this id."""
        child = self._children.get(id.strip())
        if child is not None:
            child.look()
        return child

    async def wait_for_news(self, child: Child) -> None:
        """Sleep until this child has ended, or any child has asked what the model was not shown yet."""
        await trio.lowlevel.checkpoint()
        while child.running and not self.escalations.has_news:
            await self._changed.wait()

    async def take(self, me: Actor, child: Child) -> dict[str, Json]:
        """The result of a child that has ended, once; it is forgotten then. Long output is summarized for `me`."""
        record = child.record
        del self._children[child.id]
        try:
            output = await self._output(me, record)
        except BaseException:  # cancelled too: the result is not lost
            self._children[child.id] = child  # the parent has not read it
            raise
        if child.letter is not None:
            self._inbox.take_back(child.letter)
        result: dict[str, Json] = {
            "status": "completed",
            "id": record.id,
            "agent": record.agent,
            "exit_status": child.exit_status,
            "output": output,
        }
        if child.task is not None:
            result["task_id"] = child.task.id
        return result

    async def cancel(self, child: Child) -> bool:
        """End a running child and wait for that; False if its clean-up takes longer than it may."""
        if child.ref is None:  # it is being started by another call
            return False
        child.ref.cancel()
        with trio.move_on_after(CANCEL_WITHIN):
            await child.ref.wait()
        return not child.running

    async def _output(self, me: Actor, record: ChildRecord) -> str:
        return await summarized(
            me,
            record.output,
            agent=record.agent,
            context=self._context,
            model=self.agent.summarization_model or self._context.model or self.agent.model or "",
            threshold=self.agent.summarization_threshold,
        )
