"""Patterns of a file: what is cheap is matched at once, and nothing takes for ever."""

from __future__ import annotations

import re

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from support.messages import has_message, says
from support.workflow_run import WorkflowRunner, written

from callboard.actors.engine.workflow import matching
from callboard.actors.engine.workflow.edges import Functions, predicate_of
from callboard.actors.engine.workflow.matching import Pattern
from callboard.actors.engine.workflow.nodes.python import code_in, files_in
from callboard.protocol.errors import GraphMistake, NodeFailed
from callboard.protocol.events import Warned
from callboard.protocol.workflow.model import KeywordCondition, RegexCondition

HOSTILE = [
    ("(a|aa)+$", "a" * 60 + "b"),
    ("(?:(?:a?)*)*$", "a" * 9_000 + "b"),
    ("(?:a{0,9}){9}$", "a" * 90_000 + "b"),
    ("((a)?){30}(?<!a)$", "a" * 90_000 + "b"),
    ("(?:(?=a+)a)+$", "a" * 9_000 + "b"),
]


@pytest.mark.parametrize(("pattern", "text"), HOSTILE)
@pytest.mark.sample(3)
async def test_one_that_takes_for_ever_holds_nothing_up_and_is_ended(
    pattern: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "SECONDS", 1.0)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.sleep(0.01)
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        with pytest.raises(NodeFailed, match=rf"did not finish a text of {len(text)} characters within 1 s"):
            await Pattern(pattern).spans(text)
        nursery.cancel_scope.cancel()
    assert turns >= 2  # one alone may be the last, when the match had ended


@pytest.mark.parametrize("pattern", ["APPROVED", "[Dd]one|x", r"Score:\s*(\d+)", "a.*b", "(?:ab){3}", "(a+)+$"])
def test_what_is_quick_is_known_at_once(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "AT_ONCE", 60.0)  # of the whole process, which has other threads
    assert isinstance(Pattern(pattern).is_in("a" * 40 + "b"), bool)


def test_a_long_text_is_never_searched_at_once() -> None:
    found = Pattern("b").is_in("b" * 20_000)
    assert not isinstance(found, bool)
    found.close()


@pytest.mark.parametrize("pattern", ["x(.*)y", "(?P<n>b)?(a)", "\ud800|ä", "(?i)A+"])
@pytest.mark.parametrize("text", ["", "xäay aa xy", "\ud800b a"])
async def test_a_thread_finds_what_is_found_at_once(pattern: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(group: int | str) -> object:
        met = one.is_in(text)
        return met if isinstance(met, bool) else await met, await one.spans(text, group), await one.each(text, group)

    one = Pattern(pattern)
    groups: list[int | str] = [*range(one.groups + 1), *one.names]
    near = [await found(group) for group in groups[-2:]]
    monkeypatch.setattr(matching, "SHORT", -1)
    assert near == [await found(group) for group in groups[-2:]]


@pytest.mark.parametrize(
    ("bound", "most", "told"),
    [
        ("MATCHES", 1000, says("engine.workflow.matching.Pattern._in_thread.3", text=200000)),
        ("WORK", 399_999, says("engine.workflow.matching.Pattern._in_thread")),
    ],
)
async def test_what_is_taken_of_a_text_and_for_it_is_bounded(
    bound: str, most: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, bound, most)
    with pytest.raises(NodeFailed, match=told):
        await Pattern("(a)|b").spans("ab" * 100_000)


async def test_who_waits_for_a_match_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SECONDS", 3.0)
    with trio.move_on_after(0.05) as scope:
        await Pattern("(a|aa)+$").spans("a" * 60 + "b")
    assert scope.cancelled_caught


EDGES = {
    "condition: {type: regex, config: {pattern: (a|aa)+$}}": "its condition failed and counts as met",
    "process: {type: regex_extract, config: {pattern: (a|aa)+$}}": "its processor failed and the message arrives unch",
}


@pytest.mark.parametrize("edge", EDGES)
async def test_an_edge_whose_pattern_takes_too_long_warns_and_is_taken(
    edge: str, workflow_runner: WorkflowRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "SECONDS", 0.2)
    result = await workflow_runner.run(written(workflow_runner.directory, HANGING % edge), "go")
    assert (result.error, result.output) == (None, "a" * 60 + "b")
    (warned,) = [event.data.message for event in workflow_runner.events if isinstance(event.data, Warned)]
    assert f"the edge from 'A' to 'B': {EDGES[edge]}" in warned
    assert has_message(warned, "engine.workflow.matching.Pattern._in_thread.2", text=61, SECONDS="0.2")


async def test_a_split_whose_pattern_takes_too_long_fails_its_node(
    workflow_runner: WorkflowRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "SECONDS", 0.2)
    edge = "dynamic: {type: map, split: {type: regex, config: {pattern: '(a|aa)+$'}}}"
    result = await workflow_runner.run(written(workflow_runner.directory, HANGING % edge), "go")
    assert isinstance(result.error, NodeFailed)
    assert result.error.node == "B"


HANGING = """
    graph:
      nodes:
        - {id: A, type: literal, config: {content: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab}}
        - {id: B, type: passthrough, config: {}}
      edges: [{from: A, to: B, %s}]
"""


async def test_a_condition_waits_for_those_that_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SHORT", -1)
    test = predicate_of(RegexCondition(pattern="(a+)+b"), Functions())
    assert callable(test)
    met = test("aab")
    assert not isinstance(met, bool)
    assert await met
    test = predicate_of(KeywordCondition(regex=("(a+)+c", "z", "(a+)+b")), Functions())
    assert callable(test)
    for text in ("aab", "z"):
        met = test(text)
        assert not isinstance(met, bool)
        assert await met


PARTS = [*"ab|*+?(){}[]:^$.1,2-s", "[[:", ":]]", "{e}", r"\\", r"\{", r"\w"]


@pytest.mark.filterwarnings("ignore:Possible")
@given(
    st.lists(st.sampled_from([*"ab|*+?(){}[]:^$.1,2-s", "[[:", ":]]", "{e}", r"\\", r"\{", r"\w"]), max_size=9).map(
        "".join
    ),
    st.text(alphabet="ab{}[]:se1", max_size=9),
)
async def test_a_pattern_means_what_it_means_to_python(pattern: str, text: str) -> None:
    try:
        known = re.compile(pattern)
    except (re.error, OverflowError):
        with pytest.raises(GraphMistake):
            Pattern(pattern)
        return
    assert await Pattern(pattern).spans(text) == [match.span() for match in known.finditer(text)]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("item{e}", "item{e} item iten"),
        ("(?:foo){s<=1}", "fox (foo){s<=1} foo{s<=1}"),
        ("[[:alpha:]]", "a] :] b"),
        (r"\N{DIGIT ONE}{2}", "11"),
        (r"\\{a}", "\\{a}"),
        ("(?x) a{2} # [ {", "aa"),
    ],
)
@pytest.mark.filterwarnings("ignore:Possible nested set")
async def test_what_only_the_other_matcher_would_read_into_it_stands_for_itself(pattern: str, text: str) -> None:
    assert await Pattern(pattern).spans(text) == [match.span() for match in re.finditer(pattern, text)]


def test_a_megabyte_of_backticks_holds_nobody_up() -> None:
    """It would take hours if the time grew with the square of its length."""
    text = "`" * 1_000_000
    assert code_in(text) == text
    assert files_in("a.py\n" + text) == {}
