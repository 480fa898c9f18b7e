"""What a conversation is told of its MCP servers when its run goes on, as its decider has it."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.engine.conversation.decider import ConversationDecider
from callboard.actors.engine.conversation.run import ConversationSetup
from callboard.protocol.chat import ChatReply, ToolCall, UserTurn
from callboard.protocol.effects import CallModel, Emit, Finish
from callboard.protocol.events import Warned
from callboard.protocol.messages import ConversationBegun, Idle, Replied, ServersRestarted

ANEW = ServersRestarted(servers=("notes",))
NEWS = "The MCP server 'notes' runs anew."


def begun() -> ConversationDecider:
    decider = ConversationDecider(ConversationSetup(name="a", tools={}, max_turns=5))
    decider.begin(ConversationBegun((UserTurn("go"),)))
    return decider


def asked(effects: list[Any]) -> CallModel:
    return next(effect for effect in effects if isinstance(effect, CallModel))


def news_in(request: CallModel) -> list[bool]:
    return [isinstance(turn, UserTurn) and NEWS in str(turn.content) for turn in request.messages]


def test_it_reads_of_it_with_its_next_request_once() -> None:
    decider = begun()
    [told] = decider.on(ANEW)
    assert isinstance(told, Emit)
    assert isinstance(told.event, Warned)
    first = asked(decider.on(Idle("turn")))
    assert news_in(first) == [False, True]
    calls = (ToolCall(id="1", name="nothing"),)
    decider.on(Replied(first.key, reply=ChatReply(text="", tool_calls=calls, model="a:b")))
    assert news_in(asked(decider.on(Idle("turn")))).count(True) == 1


@pytest.mark.parametrize("names", [("notes",), ("notes", "time")])
def test_a_request_that_was_under_way_is_made_with_the_news_and_the_old_one_is_forgotten(
    names: tuple[str, ...],
) -> None:
    decider = begun()
    first = asked(decider.on(Idle("turn")))
    again = asked(decider.on(ServersRestarted(servers=names)))
    assert again.key > first.key
    assert len(again.messages) == 2
    assert all(f"'{name}'" in str(again.messages[1]) for name in names)
    [end] = decider.on(Replied(again.key, reply=ChatReply(text="well", model="a:b")))
    assert isinstance(end, Finish)
