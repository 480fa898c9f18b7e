"""The YAML of sessions: what a hostile or torn file can do, which is nothing."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import has_message, says

from callboard.protocol.errors import InvalidFile
from callboard.protocol.session import DEEPEST, Session, read_session, read_yaml, turns_of, write_session, write_yaml


@pytest.mark.parametrize(
    "text",
    [
        "messages: " + "[" * 200_000,
        "a: " + "{a: " * 50_000,
        "- " * 50_000,
        "? " * 50_000,
        "a: &a [*a]",
        "a: *nowhere",
        "? [a, b]\n: c",
        "a: !!binary aGk=",
        "a: !!int yes",
        "a: " + "9" * 5_000,
        "a: b\n---\na: c",
        "a: 'torn",
        "a: \x00",
    ],
    ids=str,
)
def test_a_file_that_means_no_good_is_refused_and_ends_no_process(text: str) -> None:
    with pytest.raises(InvalidFile, match=r"^bad\.yaml"):
        read_session(text, "bad.yaml")


def test_aliases_are_read_until_they_stand_for_too_much() -> None:
    assert read_yaml("a: &x [1, two]\nb: *x\nc: *x", "f") == {"a": [1, "two"], "b": [1, "two"], "c": [1, "two"]}
    bomb = "a0: &a0 [lol, lol]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidFile, match=says("protocol.session._Reading._alias.2")):
            read_session(bomb, "f")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    wide = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]"
    with pytest.raises(InvalidFile, match=says("protocol.session._Reading._alias.2")):
        read_session(wide, "f")


def test_what_nests_too_deeply_to_be_read_again_is_left_out_when_it_is_written() -> None:
    deep: Any = "bottom"
    for _ in range(3 * DEEPEST):
        deep = {"in": [deep]}
    session = Session(messages=[{"role": "user", "content": "hi", "x": deep}])
    again = read_session(write_session(session), "f")
    assert again.messages[0]["content"] == "hi"
    assert has_message(str(again.messages[0]["x"]), "protocol.session._cut")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("yes", "yes"),
        ("2024-01-01", "2024-01-01"),
        ("0x1f", 31),
        ("0o17", 15),
        ("1e3", 1000.0),
        ("-.inf", float("-inf")),
        ("'1'", "1"),
        ("! 1", "1"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
        ("!!null ''", None),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("{a: 1, a: 2}", {"a": 2}),
    ],
)
def test_plain_texts_stand_for_what_the_core_schema_says(text: str, value: Any) -> None:
    assert read_yaml(text, "f") == value


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
trees = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=100)
@given(value=trees)
def test_what_is_written_is_read_as_it_was(value: Any) -> None:
    assert read_yaml(write_yaml(value), "f") == value


@settings(deadline=None, max_examples=200)
@given(text=st.text(alphabet="ab:-[]{}&*!?|>'\"# \n1~", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        session = read_session(text, "f")
    except InvalidFile:
        return
    turns_of(session)
    assert read_session(write_session(session), "f") == session


@pytest.mark.parametrize(
    "message",
    [
        "{}",
        "{role: 5, content: {a: b}}",
        "{role: tool, content: {tool_results: 7}}",
        "{role: tool, content: {tool_results: [1, {call: x}, {call: {arguments: [1], id: {}}}]}}",
        "{role: user, content: [1, {type: image_url, image_url: 5}]}",
        "{role: user, content: [{type: file, data: '%'}]}",
        "{role: assistant, content: {tool_calls: 1}}",
    ],
)
def test_messages_of_any_shape_make_turns_or_none(message: str) -> None:
    turns_of(read_session(f"messages: [{message}]", "f"))
