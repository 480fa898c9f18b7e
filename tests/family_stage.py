"""A parent agent whose model is the test: its tool families, played through the real dispatcher in a real root.

Its children are functions, `async def explore(me, call): ...`, in place of agents with a model: `RunContext.run_agent`
is where the product itself leaves open who plays an agent.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from callboard.actors.engine.conversation.calls import Calls
from callboard.actors.work.agent.children import Children
from callboard.actors.work.agent.escalations import Escalations, escalation_tools
from callboard.actors.work.agent.mail import mail_tools
from callboard.actors.work.agent.spawn import spawn_tools
from callboard.actors.work.agent.tasks import TaskQueue, task_tools
from callboard.actors.work.agent.user import user_tools
from callboard.actors.work.context import AgentCall, RunContext
from callboard.actors.work.letters import Seat
from callboard.actors.work.record import Record
from callboard.actors.work.tools.guard import RepeatGuard
from callboard.actors.work.tools.permissions import Permissions
from callboard.protocol.agent import Agent
from callboard.protocol.chat import ToolCall
from callboard.protocol.errors import ShuttingDown
from callboard.protocol.questions import Question
from callboard.protocol.requests import Limits
from callboard.supervisors import Actor, Root

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


class Parent:
    """An agent at work. `call` plays one of its tools as a model's turn would, and returns what the model reads.

    Attributes:
        me: its actor.
        team, tasks, escalations, seat, record: its families and their state.
    """

    def __init__(
        self, me: Actor, agent: Agent, context: RunContext, *, depth: int = 0, seat: Seat | None = None
    ) -> None:
        self.me = me
        self.seat = seat or Seat()
        self.record = Record()
        self.escalations = Escalations(me)
        self.team = Children(
            me,
            agent,
            context,
            depth=depth,
            near=Path("/nowhere"),
            seat=self.seat,
            record=self.record,
            escalations=self.escalations,
        )
        self.tasks = TaskQueue(self.team)
        me.policy = self.escalations.policy
        tools = [
            *spawn_tools(self.team),
            *task_tools(self.tasks),
            *escalation_tools(self.escalations),
            *mail_tools(self.seat, self.team.office),
            *user_tools(timeout=None),
        ]
        self._calls = Calls(tools, Permissions(), guard=RepeatGuard(1000, 1))

    async def call(self, name: str, **arguments: Any) -> Any:
        return (await self.turn((name, arguments)))[0]

    async def turn(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """Several calls at once; their results."""
        wanted = [ToolCall(id=f"c{i}", name=name, arguments=given) for i, (name, given) in enumerate(calls)]
        turns = []
        with trio.CancelScope() as scope:  # the test's task reads the parent's mail, which its end does not wake
            self.me.on_end(lambda _: scope.cancel())
            turns = await self._calls.play(self.me, wanted)
        if scope.cancelled_caught:
            raise ShuttingDown("the parent has ended")
        return [json.loads(str(turn.content)) for turn in turns]

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
        await trio.sleep_forever()

    ref = await root.start(body, name="boss", link=False)
    try:
        yield ready[0]
    finally:
        ref.cancel()
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
