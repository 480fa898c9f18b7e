"""Patterns of a file: what is cheap is matched at once, and nothing takes for ever."""

from __future__ import annotations

import re

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.workflow.edges import matching
from callboard.actors.workflow.edges.conditions import Functions, predicate_of
from callboard.actors.workflow.edges.matching import Pattern
from callboard.actors.workflow.nodes.code import files_in
from callboard.actors.workflow.nodes.python import code_in
from callboard.protocol.errors import GraphMistake
from callboard.protocol.workflow.edges import KeywordCondition, RegexCondition

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


async def test_one_that_takes_for_ever_is_ended_and_others_run_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SECONDS", 0.3)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.sleep(0.01)
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        with pytest.raises(GraphMistake, match=r"'\(a\+\)\+\$' has not done with a text of 41 characters within 0.3 s"):
            await Pattern("(a+)+$").is_in("a" * 40 + "b")
        nursery.cancel_scope.cancel()
    assert turns >= 3


@pytest.mark.parametrize("pattern", ["x(.*)y", "(?P<n>b)?(a)", "\ud800|ä", "(?i)A+"])
@pytest.mark.parametrize("text", ["", "xäay aa xy", "\ud800b a"])
async def test_the_process_finds_what_is_found_here(pattern: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Pattern(pattern)
    groups: list[int | str] = [*range(one.compiled.groups + 1), *one.compiled.groupindex]
    near = [(await one.is_in(text), await one.spans(text, group), await one.each(text, group)) for group in groups[-2:]]
    monkeypatch.setattr(matching, "STEPS", -1)
    assert near == [
        (await one.is_in(text), await one.spans(text, group), await one.each(text, group)) for group in groups[-2:]
    ]


async def test_a_condition_waits_for_those_that_take_their_time() -> None:
    test = predicate_of(RegexCondition(pattern="(a+)+b"), Functions())
    assert callable(test)
    met = test("aab")
    assert not isinstance(met, bool)
    assert await met
    test = predicate_of(KeywordCondition(regex=("(a+)+c", "z", "(a+)+b")), Functions())
    assert callable(test)
    met = test("aab")
    assert not isinstance(met, bool)
    assert await met
    assert test("z") is not False


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
