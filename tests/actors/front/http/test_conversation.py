"""What a run leaves to its client's tools: cut from the conversation, and remembered as long as there is room."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from callboard.actors.front.http.shapes import conversation as handed
from callboard.actors.front.http.shapes.conversation import HandedOut, Remembered, handed_out
from callboard.actors.work.agent.history import INTERRUPTED
from callboard.protocol.chat import AssistantTurn, ToolCall, ToolTurn, Turn, UserTurn

BEFORE: tuple[Turn, ...] = (UserTurn("hi"), AssistantTurn("hello"))


def call(id: str, name: str = "lookup") -> ToolCall:
    return ToolCall(id=id, name=name)


def left(id: str) -> ToolTurn:
    return ToolTurn(id, "lookup", INTERRUPTED, error=True)


def said(*turns: Turn) -> Sequence[Turn]:
    return (*BEFORE, UserTurn("and?"), *turns)


@pytest.mark.parametrize(
    "turns",
    [
        (),
        (AssistantTurn("fine"),),
        (AssistantTurn("", (call("a"),)), ToolTurn("a", "lookup", "red"), AssistantTurn("red it is")),
        (AssistantTurn("", (call("a"),)), left("a"), AssistantTurn("after an interruption")),
    ],
)
def test_a_run_that_has_answered_leaves_nothing(turns: tuple[Turn, ...]) -> None:
    assert handed_out("run-1", said(*turns), BEFORE) is None


def test_calls_that_nobody_has_played_are_handed_out_by_ids_of_the_run() -> None:
    found = handed_out("run-7", said(AssistantTurn("x", (call("a"), call("b"))), left("a"), left("b")), BEFORE)
    assert found is not None
    assert [each.id for each in found.calls] == ["call_7_0", "call_7_1"]
    assert found.turns == (UserTurn("and?"), AssistantTurn("x", found.calls))


def test_what_the_agent_has_played_stays_with_its_result() -> None:
    mine = ToolTurn("a", "add", "3")
    found = handed_out("run-7", said(AssistantTurn("", (call("a", "add"), call("b"))), mine, left("b")), BEFORE)
    assert found is not None
    assert [each.name for each in found.calls] == ["lookup"]
    assert found.turns[1:] == (AssistantTurn("", (call("a", "add"), *found.calls)), mine)


def test_of_a_conversation_that_was_shortened_only_the_calls_are_known() -> None:
    found = handed_out("run-7", [UserTurn("a summary"), AssistantTurn("", (call("a"),)), left("a")], BEFORE)
    assert found is not None
    assert len(found.calls) == 1
    assert found.turns == ()
    remembered = Remembered()
    remembered.keep("me", found)
    assert remembered.find("me", "call_7_0") is None


def test_only_who_has_started_a_run_goes_on_with_it_and_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handed, "MOST_BYTES", 5_000)
    remembered = Remembered()
    runs = [HandedOut(calls=(call(f"c{number}"),), turns=(UserTurn("x" * 1000),)) for number in range(3)]
    for run in runs:
        remembered.keep("me", run)
    assert [remembered.find("me", f"c{number}") for number in range(3)] == [None, *runs[1:]]
    assert remembered.find("you", "c2") is None


def test_many_short_runs_are_forgotten_before_they_take_more_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handed, "MOST_BYTES", 100 * 1024)
    remembered = Remembered()
    many = 100
    for number in range(many + 10):
        remembered.keep("me", HandedOut(calls=(call(f"c{number}"),), turns=(UserTurn("x"),)))
    assert remembered.find("me", "c9") is None
    assert remembered.find("me", f"c{many + 9}") is not None
