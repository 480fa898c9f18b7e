"""Templates of the chat's prompts."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.cli.chat.prompts import LEFT, RIGHT, Prompts, PromptTemplate, variables
from callboard.cli.render.markdown.rows import visible_width
from callboard.protocol.control.chat import ChatInfo

LOKI = (
    "{color.red}{model}){color.green}{?session {?agent {agent}>}{session}{?role /}}{!session {?agent {agent}>}}{role}"
    "{?rag @{rag}}{color.cyan}{?session )}{!session >}{color.reset} "
)
"""The example of Loki's page."""


def plain(text: str, **values: object) -> str:
    return PromptTemplate(text).render(values, colour=False)  # type: ignore[arg-type]  # tests give any value


@pytest.mark.parametrize(
    ("text", "values", "shown"),
    [
        ("{?variable yay}{!variable boo}", {"variable": True}, "yay"),
        ("{?variable yay}{!variable boo}", {"variable": False}, "boo"),
        ("{?variable {!variable2 yay}>}", {"variable": True, "variable2": False}, "yay>"),
        ("{?variable {!variable2 yay}>}", {"variable": True, "variable2": True}, ">"),
        ("{?variable {!variable2 yay}>}", {}, ""),
        ("{?tokens some}", {"tokens": 0}, ""),
        ("{unknown}.", {}, "."),
        ("a { b } c", {}, "a { b } c"),
        ("{?open never closed", {"open": 1}, "{?open never closed"),
        ("{temperature}", {"temperature": 0.5}, "0.5"),
        (LOKI, {"model": "openai:gpt-4"}, "openai:gpt-4)> "),
        (LOKI, {"model": "m", "session": "s", "role": "r", "rag": "k"}, "m)s/r@k) "),
        (LOKI, {"model": "m", "agent": "a"}, "m)a>> "),
    ],
)
def test_forms(text: str, values: dict[str, object], shown: str) -> None:
    assert plain(text, **values) == shown


def test_colours_are_left_out_where_there_are_none() -> None:
    template = PromptTemplate("{color.red}x{color.nothing}{color.reset}")
    assert template.render({}) == "\x1b[31mx\x1b[0m"
    assert template.render({}, colour=False) == "x"


def test_a_value_sends_nothing_to_the_terminal() -> None:
    assert plain("{session}", session="\x1b]0;x\x07\nb") == "\\x1b]0;x\\x07 b"


@given(st.text(alphabet="{}?! ab.", max_size=60))
def test_any_text_is_rendered(text: str) -> None:
    plain(text, a=1)


def test_braces_without_an_end_take_no_long_time() -> None:
    plain("{?a " * 20_000, a=1)


def test_the_usual_prompts_leave_room_in_40_columns() -> None:
    info = ChatInfo(
        chat="c", model="openai:gpt-4o-mini", agent="coder", session="report", tokens=12_000, window=128_000, percent=9
    )
    left, right = Prompts({}, colour=True).of(info)
    assert visible_width(left) + visible_width(right) <= 40
    assert (LEFT, RIGHT) != ("", "")
    assert "12000 tokens (9%)" in right
    one = Prompts({}, colour=False).of(ChatInfo(chat="c", model="m", tokens=1, cost=0.00001))[1]
    assert one.strip() == "1 token"


def test_every_variable_of_lokis_page_has_a_value() -> None:
    info = ChatInfo(
        chat="c",
        model="openai:gpt-4",
        agent="a",
        role="r",
        session="temp",
        rag="k",
        turns=2,
        tokens=200,
        window=4_096,
        percent=5,
        settings={"temperature": 1.0, "top_p": 0.9, "dry_run": True, "stream": True, "save": True},
    )
    names = (
        "model client_name model_name max_input_tokens temperature top_p dry_run stream save wrap role session dirty"
    )
    more = "consume_tokens consume_percent user_messages_len rag agent"
    values = variables(info, {"wrap": "120"})
    assert [name for name in f"{names} {more}".split() if not values.get(name)] == []
    assert not variables(msgspec.structs.replace(info, session_id="kept"), {})["dirty"]
