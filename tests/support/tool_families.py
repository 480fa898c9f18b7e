"""A parent agent whose model is the test: its tool families, played by its conversation in a real root.

Its children are functions, `async def explore(me, call): ...`, in place of agents with a model: `RunContext.run_agent`
is where the product itself leaves open who plays an agent.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from callboard.actors.engine.conversation.team import Team, TeamRules
from callboard.actors.work.agent.children import Children
from callboard.actors.work.agent.team_state import TaskQueue
from callboard.actors.work.agent.team_tools import mail_tools, team_tools
from callboard.actors.work.agent.tool_families import user_tools
from callboard.actors.work.context import AgentCall, RunContext
from callboard.actors.work.team_messages import TeamPosition
from callboard.actors.work.transcript import Record
from callboard.protocol.agent import Agent
from callboard.protocol.kernel.questions import Question
from callboard.protocol.requests import Limits
from callboard.supervisors import Actor, Root
from support.conversation import Talked

Player = Callable[[Actor, AgentCall], Awaitable[str]]


class Person:
    """A front end that remembers what it was shown."""

    def __init__(self, name: str = "terminal") -> None:
        self.name = name
        self.shown: list[Question] = []
        self.gone: list[tuple[str, str]] = []

    def asked(self, question: Question) -> None:
        self.shown.append(question)

    def closed(self, question_id: str, by: str) -> None:
        self.gone.append((question_id, by))


class Parent(Talked):
    """An agent at work, whose model is the test. `play` is the body of its actor.

    Attributes:
        seat: its place.
    """

    def __init__(
        self, me: Actor, agent: Agent, context: RunContext, *, depth: int = 0, seat: TeamPosition | None = None
    ) -> None:
        self.seat = seat or TeamPosition()
        children = Children(me, agent, context, depth=depth, near=Path("/nowhere"), seat=self.seat)
        me.policy = children.policy
        self.rules = TeamRules(
            most=agent.max_concurrent_agents, spawnable=agent.spawnable_agents, too_deep=children.too_deep
        )
        tools = [
            *team_tools(children),
            *mail_tools(self.seat, children.office),
            *user_tools(timeout=None),
        ]
        super().__init__(me, tools, children=children, address=self.seat.address, rules=self.rules)

    @property
    def team(self) -> Team:
        """As its conversation has it."""
        team = self.decider.team
        assert team is not None
        return team

    @property
    def tasks(self) -> TaskQueue:
        """Its queue."""
        return self.team.tasks

    async def spawn(self, agent: str, prompt: str = "work", **more: Any) -> str:
        """Id of a new child."""
        result = await self.call("agent__spawn", agent=agent, prompt=prompt, **more)
        assert result["status"] == "ok", result
        return str(result["id"])


@contextlib.asynccontextmanager
async def parent(
    root: Root, players: dict[str, Player], *, depth: int = 0, context: RunContext | None = None, **config: Any
) -> AsyncIterator[Parent]:
    """A parent with these agents to spawn; ended, with all its children, when the block is left."""
    ready: list[Parent] = []
    context = context or context_of(players)

    async def body(me: Actor) -> None:
        ready.append(Parent(me, Agent(name="boss", can_spawn_agents=True, **config), context, depth=depth))
        me.started()
        await ready[0].play()

    ref = await root.start(body, name="boss", link=False)
    try:
        await ready[0].begun()
        yield ready[0]
    finally:
        ref.cancel()
        await ref.wait()


@contextlib.asynccontextmanager
async def nested(me: Actor, call: AgentCall, record: Record | None = None) -> AsyncIterator[Parent]:
    """A child that is a parent itself, its conversation in an actor below `me`."""
    ready: list[Parent] = []

    async def body(actor: Actor) -> None:
        agent = Agent(name=call.name, can_spawn_agents=True)
        ready.append(Parent(actor, agent, call.context, depth=call.depth, seat=call.seat))
        if record is not None:
            record.children = ready[0].record.children
        actor.started()
        await ready[0].play()

    ref = await me.start(body, name="nested", link=False)
    try:
        await ready[0].begun()
        yield ready[0]
    finally:
        ref.cancel()
        with me.cleanup():
            await ref.wait()


def context_of(players: dict[str, Player], **options: Any) -> RunContext:
    """A run in which these functions are the agents."""

    async def run_agent(me: Actor, call: AgentCall) -> str:
        ref = me.spawn(players[call.name], call, name=call.name, link=False)
        end = await ref.wait()
        if end.error is not None:
            raise end.error
        return str(end.value)

    given: dict[str, Any] = {"gateway": None, "limits": Limits(), "config_dir": Path("/nowhere"), "environ": {}}
    return RunContext(**{**given, **options}, run_agent=run_agent)


async def says(me: Actor, call: AgentCall) -> str:
    """An agent that repeats its prompt."""
    return call.prompt


async def works_for_ever(me: Actor, call: AgentCall) -> str:
    """An agent that says something and never ends."""
    assert call.record is not None
    call.record.turns += 1
    call.record.texts.append("this far")
    await trio.sleep_forever()
    raise AssertionError


async def fails(me: Actor, call: AgentCall) -> str:
    """An agent that says something and fails."""
    assert call.record is not None
    call.record.texts.append("half of it")
    raise ValueError("out of luck")
