"""Thinking comes back in the order in which it came, to the model that thought it, and to no other."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.work.models import stored_reasoning
from callboard.actors.work.models.codec import ReplyBuilder
from callboard.protocol.chat import AssistantTurn, ChatReply, Thought, ToolCall

pieces = st.lists(
    st.one_of(
        st.text(min_size=1, max_size=4).map(lambda text: ("text", text)),
        st.integers(0, 9).map(lambda number: ("block", {"n": number})),
        st.just(("call", None)),
    ),
    max_size=8,
)


def built(came: list[Any]) -> ChatReply:
    builder = ReplyBuilder("form")
    for number, (kind, value) in enumerate(came):
        if kind == "text":
            list(builder.text(value))
        elif kind == "block":
            builder.thought(value)
        else:
            list(builder.call(number, id=str(number), name="look"))
    return builder.build()


def as_sent(came: list[Any]) -> list[Any]:
    """What a provider gets again: neighbouring texts are one; between two blocks texts of calls come before them."""
    merged: list[Any] = []
    first = next((index for index, (kind, _) in enumerate(came) if kind == "block"), len(came))
    last = max((index for index, (kind, _) in enumerate(came) if kind == "block"), default=-1)
    head = sorted(came[: min(first, last + 1)], key=lambda item: item[0] == "call")
    tail = sorted(came[last + 1 :], key=lambda item: item[0] == "call")
    for kind, value in [*head, *came[len(head) : last + 1], *tail]:
        if kind == "text" and merged and merged[-1][0] == "text":
            merged[-1] = ("text", merged[-1][1] + value)
        else:
            merged.append((kind, value))
    return merged


@settings(deadline=None)
@given(pieces)
def test_a_turn_comes_back_as_it_came(came: list[Any]) -> None:
    reply = built(came)
    turn = ChatReply(text=reply.text, tool_calls=reply.tool_calls, thought=reply.thought, model="c:m").turn()
    found: list[Any] = []
    for piece in stored_reasoning.sent(turn, "c:m", "form"):
        if isinstance(piece, str):
            found.append(("text", piece))
        else:
            found.append(("call", None) if isinstance(piece, ToolCall) else ("block", piece[0]))
    assert found == [(kind, value) for kind, value in as_sent(came) if kind != "text" or value.strip()]


@settings(deadline=None)
@given(pieces)
def test_it_costs_nothing_where_there_is_none(came: list[Any]) -> None:
    reply = built([each for each in came if each[0] != "block"])
    assert reply.thought is None
    assert reply.turn().thought is None


def test_what_stands_behind_the_last_block_is_not_kept() -> None:
    reply = built([("block", {"n": 1}), ("text", "abc"), ("call", None)])
    assert reply.thought == Thought(form="form", data=[{"n": 1}])


def test_others_get_nothing_of_it() -> None:
    turn = AssistantTurn("hello", thought=Thought(by="c:m", form="form", data=[{"n": 1}]))
    assert list(stored_reasoning.sent(turn, "c:m", "form")) == [({"n": 1}, ""), "hello"]
    assert list(stored_reasoning.sent(turn, "c:other", "form")) == ["hello"]
    assert list(stored_reasoning.sent(turn, "c:m", "other")) == ["hello"]


def test_what_was_written_by_hand_breaks_nothing() -> None:
    for data in (5, "x", {"a": 1}, [None, 99, "x", -4, {"n": 1, "_text": "3"}, {"_text": -2}, None]):
        turn = AssistantTurn("hello", (ToolCall(id="1", name="look"),), Thought(by="c:m", form="f", data=data))
        found = list(stored_reasoning.sent(turn, "c:m", "f"))
        said = "".join(each if isinstance(each, str) else each[1] for each in found if not isinstance(each, ToolCall))
        assert (said, sum(isinstance(each, ToolCall) for each in found)) == ("hello", 1)
