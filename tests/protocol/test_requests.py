"""A run's request is a message: it survives JSON and msgpack, and refuses what no run can be given."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import says

from callboard.protocol.agent import Agent
from callboard.protocol.chat import AssistantTurn, FilePart, ImagePart, TextPart, ToolCall, ToolTurn, UserTurn
from callboard.protocol.errors import UsageError
from callboard.protocol.interrupted_calls import ON_UNKNOWN
from callboard.protocol.mcp.config import Server, ToolList
from callboard.protocol.placement import Branch, PartOf
from callboard.protocol.requests import COMPAT, Limits, Overrides, RunRequest
from callboard.protocol.sandbox import PROFILES, OwnSandbox

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
several = st.lists(texts, max_size=2).map(tuple)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=8,
)
objects = st.dictionaries(texts, json_values, max_size=2)
amounts = st.none() | st.integers(0, 10**9)
parts = st.one_of(
    st.builds(TextPart, texts),
    st.builds(ImagePart, media_type=texts, data=st.binary(max_size=20), url=texts),
    st.builds(FilePart, name=texts, data=st.binary(max_size=20), media_type=texts),
)
contents = texts | st.lists(parts, max_size=2).map(tuple)
calls = st.builds(ToolCall, id=texts, name=texts, arguments=objects, malformed=texts, signature=texts)
turns = st.one_of(
    st.builds(UserTurn, contents),
    st.builds(AssistantTurn, texts, st.lists(calls, max_size=2).map(tuple)),
    st.builds(ToolTurn, call=texts, name=texts, content=contents, error=st.booleans()),
)
agents = st.builds(
    Agent,
    name=texts.filter(bool),
    instructions=texts,
    model=st.none() | texts,
    global_tools=several,
    mcp_servers=several,
    can_ask_user=st.booleans(),
)
servers = st.builds(
    Server,
    name=texts,
    type=st.sampled_from(["stdio", "http", "sse"]),
    args=several,
    env=st.dictionaries(texts, texts, max_size=2),
    cwd=st.none() | texts,
    tools=st.builds(ToolList, allow=st.none() | several, deny=several),
)
answers = st.one_of(texts, st.booleans(), st.integers(), st.none(), st.lists(texts, max_size=2))
requests = st.builds(
    RunRequest,
    target=texts | agents,
    prompt=texts,
    typed=st.none() | texts,
    model=st.none() | texts,
    variables=st.dictionaries(texts, texts, max_size=2),
    state=objects,
    answers=st.none() | st.lists(answers, max_size=2) | st.dictionaries(texts, answers | st.lists(answers, max_size=2)),
    compat=st.sampled_from([None, *COMPAT]),
    limits=st.builds(
        Limits, timeout=st.none() | st.floats(0, 1e9), max_turns=amounts, max_tokens=amounts, max_cost=amounts
    ),
    allow_unpriced=st.booleans(),
    no_wait=st.booleans(),
    strict=st.booleans(),
    allow=several,
    yes=st.booleans(),
    roots=several,
    knowledge=several,
    files=several,
    rebuild_knowledge=st.booleans(),
    attach=several,
    save=st.none() | texts,
    id=st.none() | st.from_regex("run-[0-9a-z]{1,40}", fullmatch=True),
    history=st.lists(turns, max_size=2).map(tuple),
    cwd=st.none() | texts,
    servers=st.lists(servers, max_size=2).map(tuple),
    parts=st.lists(parts, max_size=2).map(tuple),
    overrides=st.builds(Overrides, sampling=objects, auto_continue=st.none() | st.booleans()),
    role=st.none(),
    role_prompt=st.none() | texts,
    default_tools=st.booleans(),
    on_unknown=st.sampled_from([None, *ON_UNKNOWN]),
    sandbox=st.sampled_from([None, *PROFILES]),
    workspace=st.none() | st.booleans(),
    needs=several,
    part=st.none()
    | st.builds(
        PartOf,
        run=texts,
        depth=st.integers(0, 9),
        max_depth=amounts,
        denied=st.lists(st.dictionaries(texts, st.sampled_from(["allow", "ask", "deny"]), max_size=2), max_size=2).map(
            tuple
        ),
        held=st.lists(st.builds(OwnSandbox, hide=several), max_size=2).map(tuple),
        untrusted=several,
        private=several,
        branch=st.none() | st.builds(Branch, node=texts, item=objects, index=st.integers(0, 9), state=objects),
    ),
)


@given(requests)
@settings(max_examples=60)
def test_a_request_survives_json_and_msgpack_and_its_own_checks(request: RunRequest) -> None:
    assert msgspec.json.decode(msgspec.json.encode(request), type=RunRequest) == request
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=RunRequest) == request
    assert msgspec.structs.replace(request) == request


def test_every_field_is_generated_so_that_a_new_one_is_tested_too() -> None:
    built = requests.wrapped_strategy if hasattr(requests, "wrapped_strategy") else requests
    assert set(RunRequest.__struct_fields__) == set(built.kwargs)  # type: ignore[attr-defined]  # of st.builds


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"compat": "lokki"},
            says("protocol.requests.RunRequest.__post_init__", COMPAT="standard, loki, devall", compat="lokki"),
        ),
        ({"id": "run_1"}, says("protocol.requests.RunRequest.__post_init__.2", id="run_1")),
        ({"prompt": "h\udcffi"}, says("protocol.requests._check_unicode.2", what="the prompt")),
        (
            {"variables": {"where": "\udcff"}},
            says("protocol.requests._check_unicode.2", what="…'where'…", where="its character 1 is a…"),
        ),
        ({"state": {"x": "\udcff"}}, says("protocol.requests._plain_state.4")),
        ({"state": {"x": object()}}, says("protocol.requests._plain_state")),
        ({"answers": ["yes", "n\udcff"]}, says("protocol.requests._check_unicode.2", what="answer 2")),
        ({"answers": {"ask": "\ud800"}}, says("protocol.requests._check_unicode.2", what="…'ask'…")),
        ({"answers": [{"a": 1}]}, says("protocol.requests._worded", what="answer 1", __name__="dict")),
        ({"answers": {"q": [b"x"]}}, says("protocol.requests._worded", what="…'q'…", __name__="bytes")),
    ],
)
def test_what_no_run_can_be_given_is_refused_when_the_request_is_made(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        RunRequest(target="x", **given)


def test_state_that_is_nested_without_end_is_refused() -> None:
    itself: list[Any] = []
    itself.append(itself)
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    for value in (itself, deep):
        with pytest.raises(UsageError, match="`state` is nested too deep"):
            RunRequest(target="x", state={"x": value})


def test_tuples_in_state_are_lists_as_after_json() -> None:
    assert RunRequest(state={"b": {"x": (1, (2,))}}).state == {"b": {"x": [1, [2]]}}


def test_answers_are_kept_as_texts_in_order_or_per_visit_of_a_node() -> None:
    assert RunRequest(target="x", answers=[True, None, 1.5, ["a", 2]]).answers == ["yes", "", "1.5", ["a", "2"]]
    assert RunRequest(target="x", answers={"q": ["b", False], "r": 7}).answers == {"q": ["b", "no"], "r": ["7"]}


def test_a_request_says_something_by_a_prompt_by_what_is_beside_it_or_by_results_of_tools() -> None:
    result = ToolTurn(call="1", name="t", content="42")
    assert RunRequest(target="x", prompt=" ").says_nothing
    assert RunRequest(target="x", history=(UserTurn("hi"),)).says_nothing
    speaking: tuple[dict[str, Any], ...] = (
        {"prompt": "hi"},
        {"files": ("a",)},
        {"parts": (TextPart("a"),)},
        {"history": (UserTurn("hi"), result)},
    )
    assert not any(RunRequest(target="x", **given).says_nothing for given in speaking)
