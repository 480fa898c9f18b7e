"""What is between the deciders of a durable run, from its rows."""

from __future__ import annotations

from datetime import UTC, datetime

from callboard.actors.work.journal.run_journal import SharedState
from callboard.protocol.chat import ChatReply, TokenUsage
from callboard.protocol.journal import (
    LETTER,
    Answered,
    AnyRow,
    Asked,
    Intends,
    MessageRow,
    Noted,
    Posted,
    encode_value,
)
from callboard.protocol.kernel.questions import Answer, Question
from callboard.protocol.messages import ServersRestarted, TeamMessage, Text


def seen(*rows: tuple[str, AnyRow]) -> SharedState:
    crossing = SharedState()
    for path, row in rows:
        crossing.see(path, row)
    return crossing


def letter(text: str) -> TeamMessage:
    return TeamMessage(sender="a", payload=Text(text), written=datetime(2026, 11, 25, 12, 0, 0, 123456, tzinfo=UTC))


def posted(to: str, text: str) -> Noted:
    return Noted(1, LETTER, encode_value(Posted(to, letter(text))))


def test_letters_that_were_sent_and_not_told_are_on_their_way_in_their_order() -> None:
    crossing = seen(
        ("a/3", posted("b", "one")),
        ("a/4", posted("b", "two")),
        ("a/5", posted("", "for the run's own agent")),
        ("b", MessageRow(2, letter("one"))),
        ("a/6", posted("b", "three")),
    )
    assert crossing.undelivered == {"b": [letter("two"), letter("three")], "": [letter("for the run's own agent")]}


def test_of_two_letters_that_are_alike_one_is_on_its_way_when_one_was_told() -> None:
    crossing = seen(("a/3", posted("b", "hi")), ("c/1", posted("b", "hi")), ("b", MessageRow(2, letter("hi"))))
    assert crossing.undelivered == {"b": [letter("hi")]}


def test_a_letter_that_was_refused_is_not_on_its_way() -> None:
    refused = Noted(1, LETTER, encode_value(Posted("", None, "its inbox is full")))
    assert seen(("a/3", refused)).undelivered == {}


def test_questions_are_known_by_when_they_were_asked_and_by_who_has_answered() -> None:
    question = Question(id="q-1-1", actor="/run-1/a", text="Go on?", kind="text")
    crossing = seen(
        ("a/1", Asked(1, question, 5.5)), ("a/1", Answered(2, Answer(question="q-1-1", value="yes", by="/run-1")))
    )
    assert (crossing.asked, crossing.answered) == ({"q-1-1": 5.5}, {"q-1-1": "/run-1"})


def test_a_server_is_in_use_until_its_conversation_is_told_that_it_is_another() -> None:
    used = [
        ("a/1", Intends(1, "notes__note", "notes")),
        ("a/2", Intends(1, "x__y", "x")),
        ("b/1", Intends(1, "script")),
    ]
    assert seen(*used).servers == {"a": {"notes": None, "x": None}}
    told = ("a", MessageRow(2, ServersRestarted(servers=("notes", "x"))))
    assert seen(*used, told).servers == {"a": {}}
    assert seen(*used, told, ("a/9", Intends(3, "x__y", "x"))).servers == {"a": {"x": None}}


def test_an_agent_has_spent_what_it_and_all_below_it_were_told() -> None:
    crossing = SharedState()
    reply = ChatReply(text="", usage=TokenUsage(input_tokens=10, output_tokens=5), model="a:b", cost=0.5)
    for path, told in (("1", True), ("1", False), ("1/x", True), ("1/x/2", False), ("1:2", True), ("12", True)):
        crossing.spends(path, reply, to_decider=told)
    assert [(each.path, each.tokens, each.cost) for each in crossing.below("1")] == [
        ("1", 15, 0.5),  # what is noted there is of the node that plays the agent
        ("1/x", 15, 0.5),
        ("1/x/2", 15, 0.5),
    ]
    assert len(crossing.below("")) == 6
