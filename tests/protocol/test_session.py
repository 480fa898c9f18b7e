"""A session's file: Loki's keys, ours, those that nobody knows; and its messages as turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.protocol.chat import (
    AssistantTurn,
    FilePart,
    ImagePart,
    TextPart,
    Thought,
    ToolCall,
    ToolTurn,
    Turn,
    UserTurn,
)
from callboard.protocol.errors import InvalidFile
from callboard.protocol.session import Session, head_of, messages_of, read_session, system_of, turns_of, write_session

FIXTURES = Path(__file__).parent.parent / "fixtures" / "sessions"

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60)
names = st.text(alphabet="abcdefg_", min_size=1, max_size=8)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
calls = st.lists(st.tuples(names, st.dictionaries(names, values, max_size=2), texts, st.booleans()), max_size=3)


def read(name: str) -> Session:
    return read_session((FIXTURES / name).read_text(), name)


def test_every_key_of_lokis_file_is_read_and_written_as_it_was() -> None:
    session = read("my-project.yaml")
    assert (session.temperature, session.compression_threshold, session.role_name) == (0.3, 2000, "reviewer")
    assert session.agent_variables == {"language": "Python", "since": "2024-01-01"}
    assert session.data_urls == {"0f3a": "picture.png"}
    assert session.other == {"some_future_key": [1, "two", {"three": "yes"}]}
    assert read_session(write_session(session), "again") == session


def test_of_a_compressed_session_the_summary_and_the_last_exchange_go_on() -> None:
    session = read("my-project.yaml")
    summary, question, said, first, said_too, second, answer = turns_of(session)
    assert isinstance(summary, UserTurn)
    assert str(summary.content).startswith("This is a summary")
    assert question == UserTurn("Look at main.py.")
    assert isinstance(said, AssistantTurn)
    assert (said.text, said.tool_calls[0].id, said.tool_calls[0].arguments) == (
        "Let me look.",
        "call_1",
        {"path": "main.py"},
    )
    assert first == ToolTurn("call_1", "fs_cat", '{"content": "print(\\"hello\\")"}')
    assert isinstance(said_too, AssistantTurn)  # the calls were made one after another
    assert isinstance(second, ToolTurn)
    assert said_too.tool_calls[0].id == second.call != ""
    assert answer == AssistantTurn("It prints hello.\nNo problems found.\n")
    assert system_of(session) == "You review code."


def test_a_system_prompt_is_no_turn_and_pictures_come_along() -> None:
    session = read("pictures.yaml")
    assert system_of(session) == "You describe pictures."
    picture = UserTurn((TextPart("What is this?"), ImagePart(media_type="image/png", data=b"hello")))
    assert turns_of(session) == [picture, AssistantTurn("A bridge.")]


def test_turns_come_back_from_messages_as_they_were() -> None:
    call = ToolCall(id="c1", name="fs_ls", arguments={"path": "."}, signature="sealed")
    turns: list[Turn] = [
        UserTurn((TextPart("see"), ImagePart(url="https://example.com/a.png"), FilePart("a.txt", b"text"))),
        AssistantTurn("looking", (call, ToolCall(id="c2", name="fs_cat", malformed="{"))),
        ToolTurn("c1", "fs_ls", "a.txt"),
        ToolTurn("c2", "fs_cat", "no JSON", error=True),
        AssistantTurn("done"),
    ]
    assert turns_of(Session(messages=messages_of(turns))) == turns


def test_a_call_without_a_result_is_left_out() -> None:
    turns = [UserTurn("go"), AssistantTurn("", (ToolCall(id="c", name="x"),))]
    assert messages_of(turns) == [{"role": "user", "content": "go"}]


@settings(deadline=None, max_examples=60)
@given(said=st.lists(st.tuples(texts, texts, calls), max_size=4))
def test_any_conversation_survives_the_file(said: list[Any]) -> None:
    turns: list[Turn] = []
    for index, (asked, answered, made) in enumerate(said):
        turns.append(UserTurn(asked))
        if made:
            played = [ToolCall(id=f"{index}-{n}", name=each[0], arguments=each[1]) for n, each in enumerate(made)]
            thought = Thought(by="c:m", form="f", data=[{"signature": asked}, 3, None, made[0][1]]) if asked else None
            turns.append(AssistantTurn(answered, tuple(played), thought))
            turns += [ToolTurn(call.id, call.name, each[2], each[3]) for call, each in zip(played, made, strict=True)]
        turns.append(AssistantTurn(answered, thought=Thought(by="c:m", form="f", data=[{}]) if made else None))
    text = write_session(Session(messages=messages_of(turns)))
    assert turns_of(read_session(text, "f")) == turns


def test_thinking_that_makes_no_sense_is_left_out_and_no_part_of_what_was_said() -> None:
    messages = [{"role": "assistant", "content": "hi", "thought": thought} for thought in (5, {"by": 1}, {"form": "f"})]
    assert turns_of(Session(messages=messages)) == [AssistantTurn("hi")] * 3


@settings(deadline=None, max_examples=60)
@given(known=st.dictionaries(names.map(lambda name: "x_" + name), values, max_size=3), title=texts)
def test_keys_that_nobody_knows_survive(known: dict[str, Any], title: str) -> None:
    session = Session(title=title or None, other=known, messages=[{"role": "user", "content": "a", **known}])
    text = write_session(session)
    assert read_session(text, "f") == session
    assert read_session(head_of(text), "f").title == session.title


@pytest.mark.parametrize(
    "text", ["0E0", "yes", "1:30", "007", "0x1f", "0o7", "~", "", ".nan", "-.inf", "1_000", "null", "2024-01-01"]
)
def test_a_text_that_looks_like_something_else_stays_a_text(text: str) -> None:
    written = write_session(Session(title=text or " ", messages=[{"role": "user", "content": text}]))
    assert read_session(written, "f").messages[0]["content"] == text


def test_half_a_character_is_written_as_a_question_mark() -> None:
    text = write_session(Session(title="\ud800x"))
    assert read_session(text, "f").title == "?x"


@pytest.mark.parametrize(
    "text",
    ["- a list", "messages: {a: b}", "messages: [", "temperature: hot", "a: !!python/object:os.system {}", "1: 2"],
)
def test_a_file_that_is_no_session_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidFile, match=r"bad\.yaml"):
        read_session(text, "bad.yaml")
