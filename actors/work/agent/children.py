"""The children of an agent: agents that it spawned and that run beside it.

All live below one actor under the agent's, each in an actor of its own that is called by the child's id:

    /run-7f3a/sisyphus/children/agent_explore_1a2b3c4d/explore

They are never restarted, and their failures are theirs: the parent reads of them when it collects. What a child has
said is kept wherever it ends (`Record`). The end of the parent ends them all.

What the parent knows of them belongs to its conversation (`engine/conversation/team`), which decides about them. This
object does what it wants done, and tells it what happens below: that a child has ended, asks, or asks no more.

In a durable run the rows of a child have a path of its own, by its id. When the run goes on, children that had not
ended begin again with their past, and their time has run on; those that had ended are records. What a child had asked
it asks again, under the same id, and it is not noted a second time.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from ....protocol.agent import Agent
from ....protocol.effects import AnswerQuestion, CancelChild, Effect, Spawn
from ....protocol.errors import CallboardError, LimitReached, ShuttingDown, TimedOut
from ....protocol.failure import Failure
from ....protocol.kernel.questions import Answer, Question
from ....protocol.messages import ChildEnded, EscalationClosed, EscalationNoted, FamilyCalled, FromBelow
from ....protocol.outcome import ChildRecord
from ....protocol.permissions import Permissions
from ....supervisors import Actor, End
from ....supervisors.escalation import NOTED, PASS, Verdict
from ....supervisors.ref import describe
from ..context import AgentCall, RunContext
from ..journal.family import Begun, FamilyLeft
from ..journal.of_run import CannotGoOn
from ..journal.scope import Player
from ..letters import PostOffice, Seat
from ..playback.playback import now, token
from ..record import Record
from ..tools.tool import Arguments, Decided, Json
from .family import NAME, ask_decider
from .reports import shortened_report

CATCH_UP_WITHIN = 10.0
"""Seconds in which children are expected to be where they were when an earlier process was killed: the end of their
parent, and calls about them, wait so long for that."""


_ENDS_ANYHOW = (ShuttingDown, LimitReached)
"""Errors of a child that say nothing of whether its past fits it."""


class _Child(msgspec.Struct, eq=False):
    """A child that has not ended.

    Attributes:
        left: seconds it has, or None.
        clock: ends it when they are over.
        ends: it is only to come to where it was.
        behind: it has a past, and is not where it was.
        there: of one with a past, set when it is where it was, or has ended.
    """

    spawned: Spawn
    seat: Seat
    left: float | None
    clock: trio.CancelScope | None
    ends: bool = False
    behind: bool = False
    there: trio.Event | None = None
    actor: Actor | None = None
    work: Record = msgspec.field(default_factory=Record)


class Children:
    """See the module.

    Args:
        me: the parent's actor.
        agent: the parent.
        context: the run.
        permissions: what the parent's file says; what they deny is denied to the children too.
        depth: how many agents stand above the parent.
        near: the parent's directory.
        seat: the parent's own place; letters of its children go to its address.

    Attributes:
        office: where the parent and the children write to each other.
    """

    _tell: Callable[[FromBelow], None]

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
    ) -> None:
        self.office = PostOffice(seat.address)
        self._me = me
        self._agent = agent
        self._context = context.below(permissions or {}, agent.max_agent_depth)
        self._depth = depth
        self._near = near
        self._running: dict[str, _Child] = {}
        self._player: Player | None = None
        self._noted: dict[str, EscalationNoted] = {}  # by the ids of questions that have to be asked again
        self._replies: dict[str, str | list[str]] = {}  # what they are answered then
        self._site: Actor | None = None
        self._variables = contextvars.copy_context()  # a step that spawns may be made in any task

    @property
    def too_deep(self) -> str | None:
        """Why there may be no children here, or None."""
        return self._context.too_deep(self._depth + 1)

    @property
    def at_once(self) -> Mapping[type[Effect], Callable[[Any], None]]:
        """Who carries out what the conversation wants of its children."""
        return {Spawn: self._spawn, CancelChild: self._cancel, AnswerQuestion: self._answer}

    def begin(self, tell: Callable[[FromBelow], None], player: Player | None) -> None:
        """The parent's conversation begins, and is told by this what happens; `player` keeps it in a durable run."""
        self._tell, self._player = tell, player
        if player is not None:
            self.office.parent.path = player.path

    def go_on(self, left: FamilyLeft, *, ends: bool) -> None:
        """The conversation goes on from here.

        Args:
            ends: it is about to end, and with it all that works below it.
        """
        player = self._player
        assert player is not None
        for id, begun in left.children.items():
            if begun is None:
                self.office.children[id] = None
            else:
                self._begin(begun.spawned, begun, ends=ends)
        for asked in left.escalations.values():
            question, path = asked.question.id, self._me.path
            if (by := player.crossing.answered.get(question)) is None:
                self._noted[question] = asked
            else:  # of agents, only those above the asker can have been it, each at another depth
                answered = by.startswith("/") and by.count("/") == path.count("/")
                self._tell(EscalationClosed(id=asked.id, answered=answered))
        self._replies = {question: value for question, value in left.replies.items() if question in self._noted}

    async def caught_up(self) -> None:
        """Until all that have a past are where they were, or have ended; not for long."""
        with trio.move_on_after(CATCH_UP_WITHIN):
            for child in list(self._running.values()):
                if child.there is not None:
                    await child.there.wait()

    async def available(self) -> list[tuple[str, str]]:
        """The agents that may be children, each with its description."""
        found = await trio.to_thread.run_sync(self._context.agents_near, self._near)
        allowed = self._agent.spawnable_agents
        return [(name, description) for name, description in found if allowed is None or name in allowed]

    # --- calls --------------------------------------------------------------------------------------------

    def asks(self, name: str) -> Decided:
        """Has the conversation answer a call of the tool `name`, and tells it what it has to know for that."""
        return partial(self._ask, name)

    async def _ask(self, name: str, me: Actor, key: int, arguments: Arguments) -> Json:
        agent, child = (arguments.get("agent") or "").strip(), self._running.get(str(arguments.get("id")).strip())
        if child is not None and child.there is not None:  # what it has said and done so far is not known before
            with trio.move_on_after(CATCH_UP_WITHIN):
                await child.there.wait()
        called = FamilyCalled(
            key=key,
            name=name,
            arguments=arguments,
            token=token(me),
            unknown=self._context.unknown_agent(agent, self._near) if NAME.fullmatch(agent) else None,
            turns=0 if child is None else child.work.turns,
            tool_calls=0 if child is None else child.work.tool_calls,
        )
        value = await ask_decider(me, called)
        if "output" in value:  # of a child: it is short for its parent
            output = await shortened_report(me, self._agent, self._context, value["agent"], value["output"])
            value = {**value, "output": output}
        return value

    # --- what the conversation wants ----------------------------------------------------------------------

    def _spawn(self, effect: Spawn) -> None:
        self._begin(effect, None)

    def _begin(self, spawned: Spawn, begun: Begun | None, *, ends: bool = False) -> None:
        """Start a child, or with `begun` start it again."""
        seat, left = self.office.seat(spawned.id), spawned.timeout
        if begun is not None and self._player is not None:
            if left is not None:
                left -= (self._player.now - begun.at) / 1000
            ends = ends or begun.cancelled or (left is not None and left <= 0)
        clock = None if left is None else trio.CancelScope(deadline=trio.current_time() + left)
        child = _Child(spawned, seat, left, clock, ends)
        self._running[spawned.id] = child
        try:
            if self._site is None:
                self._site = self._me.adopt(_stand, (), name="children", bond="watched")
                self._site.launch(self._variables)
            child.actor = self._site.adopt(self._play, (child,), name=spawned.id, bond="watched")
        except ShuttingDown:
            self._over(ChildRecord(id=spawned.id, agent=spawned.agent, status="cancelled"))
            return
        child.actor.on_end(partial(self._ended, child))
        if self._player is not None:
            self._keep(self._player, child, child.actor, begun)
        child.actor.launch(self._variables)

    def _keep(self, player: Player, child: _Child, actor: Actor, begun: Begun | None) -> None:
        """It is part of a durable run."""
        scope = player.child(actor, child.spawned.id, ends=child.ends)
        child.seat.address.path = scope.path
        if begun is None:
            return
        if scope.has_past:
            child.behind, child.there = True, trio.Event()
            if child.clock is not None:
                child.clock.deadline = math.inf
            scope.on_there = partial(self._is_there, child, begun.cancelled)
        elif begun.cancelled:
            actor.interrupt()

    def _is_there(self, child: _Child, cancelled: bool, over: bool) -> None:
        """A child has come to where it was when an earlier process was killed; `over`: it had come to its end."""
        assert child.there is not None
        assert child.actor is not None
        child.behind = False
        if over:
            return
        child.there.set()
        if cancelled:
            child.actor.interrupt()
        elif child.clock is not None:
            child.clock.deadline = trio.current_time() + (child.left or 0.0)

    def _cancel(self, effect: CancelChild) -> None:
        child = self._running.get(effect.id)
        if child is not None and child.actor is not None:
            child.actor.interrupt()

    def _answer(self, effect: AnswerQuestion) -> None:
        if effect.question in self._noted:
            self._replies[effect.question] = effect.value
        else:
            self._me.root.questions.answer(effect.question, effect.value, by=self._me.path)

    async def _play(self, actor: Actor, child: _Child) -> str:
        spawned = child.spawned
        call = AgentCall(
            name=spawned.agent,
            prompt=spawned.prompt,
            variables={},
            depth=self._depth + 1,
            near=self._near,
            context=self._context,
            record=child.work,
            seat=child.seat,
            escalation_timeout=self._agent.escalation_timeout,
        )
        player = self._player
        if player is None or not player.lines_up:
            return await self._in_time(actor, child, call)
        return await player.played_in_turn(spawned.id, self._in_time(actor, child, call))

    async def _in_time(self, actor: Actor, child: _Child, call: AgentCall) -> str:
        if child.clock is None:
            return await self._context.run_agent(actor, call)
        with actor.time_limit(child.clock):
            return await self._context.run_agent(actor, call)
        raise TimedOut(f"Agent '{child.spawned.agent}' did not end within its {child.spawned.timeout or 0:g} s")

    # --- what happens below -------------------------------------------------------------------------------

    def _ended(self, child: _Child, end: End) -> None:
        work, spawned = child.work, child.spawned
        record = ChildRecord(
            id=spawned.id,
            agent=spawned.agent,
            status="cancelled",
            output=work.output,
            turns=work.turns,
            tool_calls=work.tool_calls,
            children=work.children,
        )
        failures: list[CallboardError] = []
        if end.reason == "normal":
            record.status, record.output = "completed", str(end.value)
            failures = work.failures  # the run has them as well: what was not accepted in a file is not accepted here
            if failures:
                record.status, record.error = "failed", str(failures[0])
        elif end.error is not None:
            record.status, record.error = "failed", describe(end.error)
        if self._player is not None:
            self._forget(self._player, child, end)
        self._over(record, failures)

    def _forget(self, player: Player, child: _Child, end: End) -> None:
        """In a durable run: its actor has ended."""
        if child.actor is not None:
            player.scopes.ended(child.actor)
        if child.there is not None:
            child.there.set()
        error = end.error
        if child.behind and error is not None and not isinstance(error, _ENDS_ANYHOW):
            player.refuse(CannotGoOn(f"its child agent '{child.spawned.id}' can't go on: {describe(error)}"))

    def _over(self, record: ChildRecord, failures: list[CallboardError] | None = None) -> None:
        del self._running[record.id]
        self.office.children[record.id] = None
        for question, asked in list(self._noted.items()):
            if asked.agent == record.id:  # it does not ask it again
                del self._noted[question]
                self._tell(EscalationClosed(id=asked.id, answered=False))
        told = tuple(Failure.of(failure) for failure in failures or ())
        self._tell(ChildEnded(record=record, failures=told, at=now(self._me), token=token(self._me)))

    def policy(self, question: Question) -> Answer | Verdict:
        """Note what a child asks; the agent's own questions pass, and those that only a person may answer.

        These are permissions, what was asked of `people`, and secrets, which no model should hold. A question that is
        noted has an end: without a `timeout` of its own it expires after the agent's, since there may be no reader but
        a model that does not answer.
        """
        child = next((child for child in self._running.values() if _is_below(question.actor, child.actor)), None)
        if child is None or question.permission is not None or question.people or question.secret:
            return PASS
        before = self._noted.pop(question.id, None)
        id = f"esc_{self._variables.copy().run(token, self._me)}" if before is None else before.id
        if before is None:
            self._tell(EscalationNoted(id=id, agent=child.spawned.id, question=question))
        if question.timeout is None:
            with contextlib.suppress(ShuttingDown):
                self._me.spawn(self._expire, question.id, name="expiry", link=False)
        self._me.root.questions.when_closed(
            question.id, lambda by: self._tell(EscalationClosed(id=id, answered=by == self._me.path))
        )
        if question.id in self._replies:
            return Answer(question=question.id, value=self._replies.pop(question.id), by=self._me.path)
        return NOTED

    async def _expire(self, me: Actor, id: str) -> None:
        seconds = self._agent.escalation_timeout
        asked = None if self._player is None else self._player.crossing.asked.get(id)
        await trio.sleep(seconds if asked is None else max(0.0, seconds - (time.time() - asked)))
        me.root.questions.expire(id, seconds)


async def _stand(me: Actor) -> None:
    me.started()
    await trio.sleep_forever()


def _is_below(path: str, actor: Actor | None) -> bool:
    return actor is not None and (path == actor.path or path.startswith(actor.path + "/"))
