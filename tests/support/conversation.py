"""A conversation whose model is the test: its decider, driver and tools are those of the product."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import trio

from callboard.actors.engine.conversation.decider import ConversationDecider
from callboard.actors.engine.conversation.run import Conversation, ConversationSetup
from callboard.actors.engine.conversation.team import TeamRules
from callboard.actors.io.imports import imported
from callboard.actors.io.json_schema import LIBRARY
from callboard.actors.work.agent.todo import TodoList
from callboard.actors.work.tools.calls import CallPlayer
from callboard.actors.work.tools.permissions import Permissions
from callboard.actors.work.tools.tool import Tool
from callboard.actors.work.transcript import Record
from callboard.protocol.chat import ChatReply, ChatRequest, ToolCall, ToolTurn
from callboard.protocol.errors import ShuttingDown
from callboard.supervisors import Actor


class Model:
    """In place of the run that a conversation asks its model through."""

    def __init__(self) -> None:
        self._to_say, self._said = trio.open_memory_channel[tuple[ToolCall, ...]](0)
        self._to_hear, self._heard = trio.open_memory_channel[list[ToolTurn]](0)
        self.asked = trio.Event()

    async def chat(self, me: Actor, request: ChatRequest, **_: Any) -> ChatReply:
        """The calls of the test's next turn."""
        if self.asked.is_set():
            last = max(i for i, turn in enumerate(request.messages) if not isinstance(turn, ToolTurn))
            await self._to_hear.send([turn for turn in request.messages[last:] if isinstance(turn, ToolTurn)])
        self.asked.set()
        return ChatReply(text="", tool_calls=await self._said.receive(), model="the:test")

    async def turn(self, calls: Iterable[tuple[str, dict[str, Any]]]) -> list[ToolTurn]:
        """Make these calls; what came of them."""
        await self._to_say.send(
            tuple(ToolCall(id=f"c{i}", name=name, arguments=given) for i, (name, given) in enumerate(calls))
        )
        return await self._heard.receive()


class Talked:
    """One conversation with `Model`, for as long as its actor lives."""

    def __init__(
        self,
        me: Actor,
        tools: Iterable[Tool],
        *,
        todos: TodoList | None = None,
        rules: TeamRules | None = None,
        **more: Any,
    ) -> None:
        self.me = me
        self.record = Record()
        self.notice = ""
        self._model = Model()
        by_name = {tool.name: tool for tool in tools}
        talk = ConversationSetup(
            name=me.name,
            tools=by_name,
            max_turns=1_000_000,
            repeats=(1_000_000, 1),
            auto_continue=todos is not None,
            team=rules,
        )
        request = ChatRequest(model="the:test", messages=())
        player = CallPlayer(by_name, Permissions())
        context: Any = self._model
        self.conversation = Conversation(context, talk, player, request, self.record, todos=todos, **more)

    @property
    def decider(self) -> ConversationDecider:
        """What it knows."""
        assert self.conversation.decider is not None
        return self.conversation.decider

    @property
    def todos(self) -> TodoList:
        """Its todo list."""
        assert self.decider.todos is not None
        return self.decider.todos

    async def begun(self) -> None:
        """Until its model is asked."""
        await self._model.asked.wait()

    async def play(self) -> None:
        """Body of the conversation's actor, behind what else it does."""
        await imported(*LIBRARY)  # else the first call waits for a thread, and the test does not know
        await self.conversation.say(self.me, "go")

    async def turn(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """Several calls at once; their results. What the model reads behind them is `notice`."""
        turns: list[ToolTurn] = []
        with trio.CancelScope() as scope:
            self.me.on_end(lambda _: scope.cancel())
            turns = await self._model.turn(calls)
        if scope.cancelled_caught:
            raise ShuttingDown("the agent has ended")
        *texts, last = [str(turn.content) for turn in turns]
        last, _, self.notice = last.partition("\n\n{")
        self.notice = self.notice and "{" + self.notice
        return [json.loads(text) for text in (*texts, last)]

    async def call(self, name: str, **arguments: Any) -> Any:
        """One call; its result."""
        return (await self.turn((name, arguments)))[0]
