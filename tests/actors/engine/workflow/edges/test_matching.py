"""Patterns of a file: what is cheap is matched at once, and nothing takes for ever."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import suppress

import psutil
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from workflow_house import House, written

from callboard.actors.engine.workflow.edges import matching
from callboard.actors.engine.workflow.edges.conditions import Functions, predicate_of
from callboard.actors.engine.workflow.edges.matching import Pattern
from callboard.actors.engine.workflow.nodes.code import files_in
from callboard.actors.engine.workflow.nodes.python import code_in
from callboard.protocol.errors import GraphMistake, NodeFailed
from callboard.protocol.events import Warned
from callboard.protocol.workflow.edges import KeywordCondition, RegexCondition
from callboard.supervisors import Actor, Root

HOSTILE = [
    "(a+)+$",
    "(a|a)*$",
    "(a|aa)+$",
    "(?:a{0,9}){9}$",
    "(.*)*x",
    r"(\w+\s?)*$",
    "((a)?){30}(?<!a)$",
    "(?:|)" * 40 + "x",
    "(?:(?=a+)a)+$",
]


@pytest.fixture
async def me() -> AsyncIterator[Actor]:
    """The actor at the top of a root, which ends with no child left."""
    async with Root() as root:
        yield root.actor
        assert root.actor.children == ()


@pytest.mark.parametrize("pattern", HOSTILE)
def test_repetitions_inside_of_repetitions_are_never_matched_here(pattern: str) -> None:
    assert not Pattern(pattern).is_cheap("")


@pytest.mark.parametrize(
    ("pattern", "longest"),
    [
        ("APPROVED", 4_000_000),
        ("[Dd]one|x", 4000),
        (r"Score:\s*(\d+)", 200),
        ("a.*b", 4000),
        ("(?:ab){3}", 4_000_000),
    ],
)
def test_what_is_cheap_depends_on_the_length_of_the_text(pattern: str, longest: int) -> None:
    assert Pattern(pattern).is_cheap("x" * longest)
    assert not Pattern(pattern).is_cheap("x" * 30_000_000)


async def test_one_that_takes_for_ever_is_ended_and_others_run_meanwhile(
    me: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "SECONDS", 0.3)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.sleep(0.01)
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        with pytest.raises(NodeFailed, match=r"'\(a\+\)\+\$' has not done with a text of 41 characters within 0.3 s"):
            await Pattern("(a+)+$").is_in("a" * 40 + "b", me)
        nursery.cancel_scope.cancel()
    assert turns >= 3


@pytest.mark.parametrize("pattern", ["x(.*)y", "(?P<n>b)?(a)", "\ud800|ä", "(?i)A+"])
@pytest.mark.parametrize("text", ["", "xäay aa xy", "\ud800b a"])
async def test_the_process_finds_what_is_found_here(
    me: Actor, pattern: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(group: int | str) -> object:
        return await one.is_in(text, me), await one.spans(text, me, group), await one.each(text, me, group)

    one = Pattern(pattern)
    groups: list[int | str] = [*range(one.compiled.groups + 1), *one.compiled.groupindex]
    near = [await found(group) for group in groups[-2:]]
    monkeypatch.setattr(matching, "STEPS", -1)
    assert near == [await found(group) for group in groups[-2:]]


async def test_the_process_is_a_child_of_whoever_asks_and_ends_with_it() -> None:
    asked: list[Actor] = []

    async def body(me: Actor) -> None:
        asked.append(me)
        await Pattern("(a+)+$").is_in("a" * 40 + "b", me)

    async with Root() as root:
        asking = root.spawn(body, name="asking", link=False)
        with trio.fail_after(30):
            while not _matchers():
                await trio.sleep(0.01)
        assert [child.path for child in asked[0].children] == ["/asking/matching"]
        asking.cancel()
        await asking.wait()
        assert _matchers() == []


def _matchers() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if str(matching.WORKER) in each.cmdline():
                found.append(each)
    return found


@pytest.mark.parametrize(
    ("bound", "most", "told"), [("ANSWER", 1000, "matches too often in a text of 200000"), ("MEMORY", 1, "MemoryError")]
)
async def test_what_the_process_gives_back_and_uses_is_bounded(
    me: Actor, bound: str, most: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, bound, most)
    monkeypatch.setattr(matching, "STEPS", -1)
    with pytest.raises(NodeFailed, match=told):
        await Pattern("(a)|b").spans("ab" * 100_000, me)


EDGES = {
    "condition: {type: regex, config: {pattern: '(a+)+$'}}": "its condition failed and counts as met",
    "process: {type: regex_extract, config: {pattern: '(a+)+$'}}": "its processor failed and the message arrives unch",
}


@pytest.mark.parametrize("edge", EDGES)
async def test_an_edge_whose_pattern_takes_too_long_warns_and_is_taken(
    edge: str, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "SECONDS", 0.2)
    result = await house.run(written(house.directory, HANGING % edge), "go")
    assert (result.error, result.output) == (None, "a" * 40 + "b")
    (warned,) = [event.data.message for event in house.events if isinstance(event.data, Warned)]
    assert f"the edge from 'A' to 'B': {EDGES[edge]}" in warned
    assert "has not done with a text of 41 characters within 0.2 s" in warned


async def test_a_split_whose_pattern_takes_too_long_fails_its_node(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "SECONDS", 0.2)
    edge = "dynamic: {type: map, split: {type: regex, config: {pattern: '(a+)+$'}}}"
    result = await house.run(written(house.directory, HANGING % edge), "go")
    assert isinstance(result.error, NodeFailed)
    assert result.error.node == "B"


HANGING = """
    graph:
      nodes:
        - {id: A, type: literal, config: {content: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab}}
        - {id: B, type: passthrough, config: {}}
      edges: [{from: A, to: B, %s}]
"""


async def test_a_condition_waits_for_those_that_take_their_time(me: Actor) -> None:
    test = predicate_of(RegexCondition(pattern="(a+)+b"), Functions())
    assert callable(test)
    met = test("aab", me)
    assert not isinstance(met, bool)
    assert await met
    test = predicate_of(KeywordCondition(regex=("(a+)+c", "z", "(a+)+b")), Functions())
    assert callable(test)
    met = test("aab", me)
    assert not isinstance(met, bool)
    assert await met
    last = test("z", me)
    assert not isinstance(last, bool)
    assert await last


@given(st.text(alphabet="ab|*+?(){}1,2.^$\\", max_size=12))
def test_whatever_is_a_pattern_has_an_estimate(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError):
        with pytest.raises(GraphMistake):
            Pattern(pattern)
        return
    assert (Pattern(pattern).degree or 1) >= 1


def test_a_megabyte_of_backticks_holds_nobody_up() -> None:
    """It would take hours if the time grew with the square of its length."""
    text = "`" * 1_000_000
    assert code_in(text) == text
    assert files_in("a.py\n" + text) == {}
