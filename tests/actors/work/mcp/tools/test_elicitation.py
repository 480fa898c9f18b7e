"""Elicitation: a server's form as questions to a person."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.messages import has_message
from support.tool_families import Person
from trio.testing import wait_all_tasks_blocked

from callboard.actors.work.mcp.tools.elicitation import DECLINE, LEAVE_OUT, TRIES, Unfit, ask, read_field
from callboard.protocol.errors import McpError
from callboard.protocol.kernel.questions import Question
from callboard.supervisors import Root


@pytest.fixture
async def root() -> AsyncIterator[Root]:
    async with Root() as kernel:
        yield kernel


def form(*required: str, message: str = "Who are you?", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"message": message, "requestedSchema": schema}


async def told(root: Root, params: dict[str, Any], *answers: str | list[str]) -> tuple[dict[str, Any], list[Question]]:
    """What the server is told when a person answers like this, and what the person was shown."""
    person = Person()
    results: list[dict[str, Any]] = []

    async def asks() -> None:
        results.append(await ask(root.actor, "srv", params))

    with root.questions.attach(person):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asks)
            for number, answer in enumerate(answers):
                await wait_all_tasks_blocked()
                assert len(person.shown) == number + 1
                assert root.questions.answer(person.shown[number].id, answer, "terminal")
    return results[0], person.shown


async def test_each_field_is_a_question_in_the_order_of_the_form(root: Root) -> None:
    params = form(
        "name",
        name={"type": "string", "title": "Name", "description": "as in your passport"},
        age={"type": "integer", "minimum": 0, "maximum": 150},
        height={"type": "number"},
        sure={"type": "boolean"},
        colour={"type": "string", "enum": ["r", "g"], "enumNames": ["red", "green"]},
        size={"type": "string", "oneOf": [{"const": "s", "title": "small"}, {"const": "l", "title": "large"}]},
        langs={"type": "array", "items": {"anyOf": [{"const": "py", "title": "Python"}, {"const": "c", "title": "C"}]}},
    )
    result, shown = await told(root, params, "Ada", "36", "1.65", "yes", "green", "large", ["Python", "C"])
    assert result == {
        "action": "accept",
        "content": {
            "name": "Ada", "age": 36, "height": 1.65, "sure": True, "colour": "g", "size": "l", "langs": ["py", "c"],
        },
    }  # fmt: skip
    assert shown[0].text == "MCP server 'srv' asks: Who are you?\nName: as in your passport"
    assert shown[1].text == "age"
    assert shown[1].rule == "a whole number, at least 0, at most 150, may be left empty; /decline refuses"
    assert [question.kind for question in shown] == ["text"] * 3 + ["choice"] * 3 + ["checkbox"]
    assert shown[3].options == ("yes", "no", LEAVE_OUT, DECLINE)
    assert shown[4].options == ("red", "green", LEAVE_OUT, DECLINE)
    assert all(question.people for question in shown)


async def test_what_does_not_fit_is_asked_again_with_the_reason(root: Root) -> None:
    params = form("age", "mail", age={"type": "integer", "minimum": 18}, mail={"type": "string", "format": "email"})
    result, shown = await told(root, params, "old", "12", "18", "nowhere", "ada@example.org")
    assert result["content"] == {"age": 18, "mail": "ada@example.org"}
    assert [question.problem for question in shown] == [
        None,
        "'old' is not a whole number",
        "12 is less than the minimum of 18",
        None,
        "'nowhere' is not an e-mail address",
    ]


async def test_five_answers_that_do_not_fit_are_enough(root: Root) -> None:
    result, shown = await told(root, form("n", n={"type": "integer"}), *["x"] * TRIES)
    assert result == {"action": "cancel"}
    assert len(shown) == TRIES


async def test_what_is_not_required_may_be_left_out_and_defaults_count(root: Root) -> None:
    params = form(
        "unit",
        note={"type": "string"},
        some={"type": "array", "items": {"enum": ["a"]}},
        unit={"type": "string", "default": "m"},
        on={"type": "boolean", "default": False},
        off={"type": "boolean"},
    )
    result, shown = await told(root, params, "", [], "", "no", LEAVE_OUT)
    assert result == {"action": "accept", "content": {"unit": "m", "on": False}}
    assert [question.default for question in shown] == [None, None, "m", "no", None]


@pytest.mark.parametrize("answer", ["/decline", " /Decline "])
async def test_a_person_may_decline_in_the_middle(root: Root, answer: str) -> None:
    params = form(a={"type": "string"}, b={"type": "string"}, c={"type": "string"})
    result, shown = await told(root, params, "one", answer)
    assert result == {"action": "decline"}
    assert len(shown) == 2


async def test_a_choice_has_a_way_out_and_decline_as_a_text_is_a_text(root: Root) -> None:
    assert (await told(root, form(a={"type": "boolean"}), DECLINE))[0] == {"action": "decline"}
    choose = form(a={"type": "array", "items": {"enum": ["x"]}})
    assert (await told(root, choose, ["x", DECLINE]))[0] == {"action": "decline"}
    result, _ = await told(root, form(a={"type": "string"}), "decline")
    assert result == {"action": "accept", "content": {"a": "decline"}}


async def test_where_nobody_is_there_the_server_is_told_cancel_even_if_there_is_a_default(root: Root) -> None:
    assert await ask(root.actor, "srv", form(a={"type": "string"})) == {"action": "cancel"}
    assert await ask(root.actor, "srv", form(a={"type": "string", "default": "x"})) == {"action": "cancel"}


async def test_a_form_without_fields_asks_for_consent(root: Root) -> None:
    result, shown = await told(root, form(message="Go on?"), "accept")
    assert result == {"action": "accept", "content": {}}
    assert shown[0].options == ("accept", DECLINE)


async def test_a_page_is_shown_and_never_opened_by_us(root: Root) -> None:
    params = {"mode": "url", "message": "Sign in", "url": "https://auth.example.org/x?y=1", "elicitationId": "1"}
    result, shown = await told(root, params, "opened")
    assert result == {"action": "accept"}
    assert "https://auth.example.org/x?y=1" in shown[0].text
    assert has_message(shown[0].text, "work.mcp.tools.elicitation._open_page.2", host="auth.example.org")
    assert (await told(root, params, DECLINE))[0] == {"action": "decline"}


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "url", "message": "m", "url": "file:///etc/passwd"},
        {"mode": "url", "message": "m", "url": "https://good.example\u202eelpmaxe.live/"},
        {"mode": "url", "message": "m"},
        {"mode": "url", "message": "m", "url": "https://[good.example/"},
        {"message": "m", "requestedSchema": {"properties": []}},
        form(a={"type": "object", "properties": {}}),
        form(**{f"f{i}": {"type": "string"} for i in range(51)}),
    ],
)
async def test_what_is_no_form_and_no_page_is_refused(root: Root, params: dict[str, Any]) -> None:
    with pytest.raises(McpError) as caught:
        await ask(root.actor, "srv", params)
    assert caught.value.rpc_code == -32602


# --- one field -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ("date", "2026-02-28", "2026-02-30"),
        ("date", "2026-01-31", "20260131"),
        ("date-time", "2026-01-31T12:00:00Z", "2026-01-31"),
        ("uri", "https://example.org/a", "example.org"),
        ("email", "a@b.example", "a b@c"),
    ],
)
def test_formats(form: str, good: str, bad: str) -> None:
    field = read_field("f", {"type": "string", "format": form}, required=True)
    assert field is not None
    assert field.value(good) == good
    with pytest.raises(Unfit, match=r"is not an? "):
        field.value(bad)


def test_a_number_beyond_all_bounds_is_none() -> None:
    huge = 10**400
    field = read_field("n", {"type": "integer", "minimum": huge, "maximum": -huge}, required=True)
    assert field is not None
    assert field.rule == "a whole number"
    assert field.value("1" + "0" * 200) == 10**200
    for answer in (str(huge), "9" * 5000):
        with pytest.raises(Unfit, match="is not a whole number"):
            field.value(answer)


def test_what_is_shown_of_a_field_is_bounded() -> None:
    field = read_field("f", {"type": "string", "enum": ["x" * 10_000, "x" * 10_001], "default": "y"}, required=True)
    text = read_field("t", {"type": "string", "default": "y" * 10_000}, required=True)
    assert field is not None
    assert text is not None
    assert len(field.options) == 2
    assert all(len(option) < 1_000 for option in field.options)
    assert [field.value(option) for option in field.options] == ["x" * 10_000, "x" * 10_001]
    assert text.default is None


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "", "one"])
def test_a_number_is_finite(number: str) -> None:
    field = read_field("f", {"type": "number"}, required=True)
    assert field is not None
    with pytest.raises(Unfit):
        field.value(number)


@pytest.mark.parametrize("bound", ["x", None, True, [], {}])
def test_bounds_that_are_none_are_ignored(bound: Any) -> None:
    field = read_field("f", {"type": "integer", "minimum": bound, "maxLength": bound}, required=True)
    assert field is not None
    assert field.value("1") == 1


def test_two_options_of_one_title_can_be_told_apart() -> None:
    schema = {"type": "string", "oneOf": [{"const": "a", "title": "same"}, {"const": "b", "title": "same"}]}
    field = read_field("f", schema, required=True)
    assert field is not None
    assert field.options == {"same": "a", "same (b)": "b"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["type", "enum", "oneOf", "items", "default", "title", "format", "minimum", "maxLength", "enumNames", "minItems"]
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null", 7])


@given(st.dictionaries(KEYS, JSON, max_size=6), KINDS, st.text(max_size=20), st.booleans())
def test_whatever_a_server_says_a_field_has_a_value_or_says_why_not(
    schema: dict[str, Any], kind: Any, answer: str, required: bool
) -> None:
    field = read_field("f", {**schema, "type": kind}, required=required)
    if field is None:
        return
    assert isinstance(field.rule, str)
    with contextlib.suppress(Unfit):
        field.value(answer)


async def test_a_form_that_is_interrupted_leaves_no_question_open(root: Root) -> None:
    person = Person()
    with root.questions.attach(person):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, root.actor, "srv", form(a={"type": "string"}))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert root.questions.open == ()
    assert [by for _, by in person.gone] == ["cancelled"]
