"""Questions as forms, and what a form's user did as the answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.front.mcp_server.service import answer, can_be_asked, form, takes_forms
from callboard.protocol.kernel.questions import Question, QuestionKind

KINDS: list[QuestionKind] = ["choice", "text", "confirm", "checkbox"]


def question(kind: QuestionKind, **more: Any) -> Question:
    return Question(id="q1", actor="/run-1", text="Well?", kind=kind, **more)


def fields(asked: Question, version: str = "2026-07-28") -> dict[str, Any]:
    properties: dict[str, Any] = form(asked, version)["requestedSchema"]["properties"]
    return properties


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def test_each_kind_of_question_has_its_field() -> None:
    assert fields(question("text", default="x")) == {"answer": {"type": "string", "default": "x"}}
    assert fields(question("confirm")) == {"answer": {"type": "boolean"}}
    assert fields(question("confirm", default="no")) == {"answer": {"type": "boolean", "default": False}}
    closed = question("choice", options=("a", "b"), free=False, default="b")
    assert fields(closed) == {"answer": {"type": "string", "enum": ["a", "b"], "default": "b"}}
    assert set(fields(question("choice", options=("a", "b")))) == {"answer", "other"}
    several = question("checkbox", options=("a", "b"))
    assert fields(several) == {"answer": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}}


def test_what_is_wrong_and_what_is_right_stand_in_the_message() -> None:
    asked = question("text", problem="too short", rule="at least 3 characters")
    assert form(asked, "2026-07-28")["message"] == "Well?\ntoo short\nat least 3 characters"


def test_an_older_revision_has_no_lists_so_several_are_written_with_commas() -> None:
    several = question("checkbox", options=("a", "b", "c"))
    assert fields(several, "2025-06-18")["answer"]["type"] == "string"
    assert answer(several, accepted(answer="a, c,")) == ["a", "c"]
    assert answer(several, accepted(answer=["a", "c"])) == ["a", "c"]


@pytest.mark.parametrize(
    ("kind", "content", "value"),
    [
        ("confirm", {"answer": True}, "yes"),
        ("confirm", {"answer": False}, "no"),
        ("text", {"answer": "hi"}, "hi"),
        ("text", {"answer": 4}, "4"),
        ("text", {}, ""),
        ("choice", {"answer": "a", "other": ""}, "a"),
        ("choice", {"answer": "a", "other": "b"}, "b"),
    ],
)
def test_what_was_filled_in_is_the_answer(kind: QuestionKind, content: dict[str, Any], value: str) -> None:
    assert answer(question(kind), {"action": "accept", "content": content}) == value


def test_to_decline_is_a_no_only_where_a_no_can_be_said() -> None:
    assert answer(question("confirm"), {"action": "decline"}) == "no"
    assert answer(question("choice", permission="rm"), {"action": "decline"}) == "no"
    assert answer(question("text"), {"action": "decline"}) is None
    assert answer(question("confirm"), {"action": "cancel"}) is None


def test_a_password_is_never_asked_for_in_a_form() -> None:
    assert not can_be_asked(question("text", secret=True))
    assert can_be_asked(question("text"))


@pytest.mark.parametrize(
    ("abilities", "takes"),
    [
        ({"elicitation": {}}, True),
        ({"elicitation": {"form": {}}}, True),
        ({"elicitation": {"form": {}, "url": {}}}, True),
        ({"elicitation": {"url": {}}}, False),
        ({"elicitation": None}, False),
        ({}, False),
    ],
)
def test_a_client_says_whether_it_shows_forms(abilities: dict[str, Any], takes: bool) -> None:
    assert takes_forms(abilities) is takes


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(kind=st.sampled_from(KINDS), result=st.dictionaries(st.sampled_from(["action", "content"]), JSON))
def test_whatever_a_client_sends_is_an_answer_or_none(kind: QuestionKind, result: dict[str, Any]) -> None:
    value = answer(question(kind), result)
    assert value is None or isinstance(value, str) or all(isinstance(each, str) for each in value)


@given(kind=st.sampled_from(KINDS), content=JSON)
def test_whatever_is_filled_in_is_an_answer_or_none(kind: QuestionKind, content: Any) -> None:
    value = answer(question(kind), accepted(answer=content))
    assert value is None or isinstance(value, str) or all(isinstance(each, str) for each in value)


def test_a_permission_begins_with_no_and_takes_nothing_but_its_options() -> None:
    asked = form(question("choice", permission="fs_write", options=("yes", "always", "no"), free=True), "2025-11-25")
    schema = asked["requestedSchema"]
    assert list(schema["properties"]) == ["answer"]
    assert schema["properties"]["answer"]["default"] == "no"
    assert schema["required"] == ["answer"]
