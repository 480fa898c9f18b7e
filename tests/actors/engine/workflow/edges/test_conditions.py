"""Conditions of edges: when they are met, and what a broken one means."""

from __future__ import annotations

import pytest
from support.messages import has_message
from support.workflow_driver import Notice, WorkflowDriver, structure, workflow

from callboard.actors.engine.workflow.edges import Functions, predicate_of
from callboard.actors.engine.workflow.machine.machine import WorkflowWarning
from callboard.protocol.errors import BudgetReached, GraphMistake
from callboard.protocol.workflow.model import (
    Always,
    Condition,
    FunctionCondition,
    KeywordCondition,
    Never,
    RegexCondition,
)

CONDITIONS = [
    (KeywordCondition(any=("yes",)), "oh yes", True),
    (KeywordCondition(any=("YES",)), "oh yes", False),
    (KeywordCondition(any=("YES",), case_sensitive=False), "oh yes", True),
    (KeywordCondition(any=("",)), "anything", False),
    (KeywordCondition(none=("no",)), "oh yes", True),
    (KeywordCondition(none=("no",), any=("yes",)), "yes and no", False),
    (KeywordCondition(any=("yes",), regex=(r"\d+",)), "42", True),
    (KeywordCondition(regex=("^second",)), "first\nsecond", False),
    (KeywordCondition(regex=("ABC",), case_sensitive=False), "xabcx", True),
    (KeywordCondition(all=("a", "b")), "b a", True),
    (KeywordCondition(all=("a", "b")), "a", False),
    (KeywordCondition(all=("a",), any=("b",)), "a", False),
    (RegexCondition(pattern="^RESULT: .*"), "RESULT: 1", True),
    (RegexCondition(pattern="^result", flags=("IGNORECASE",)), "RESULT: 1", True),
    (RegexCondition(pattern="^b", flags=("MULTILINE", "I")), "a\nB", True),
    (RegexCondition(pattern="^b"), "a\nb", False),
    (Always(), "", True),
    (Never(), "", False),
    *((FunctionCondition(name=name), text, met) for name, text, met in [
        ("true", "", True),
        ("always_false", "", False),
        ("contains_keyword", "a Trigger", True),
        ("not_contains_keyword", "a Trigger", False),
        ("length_greater_than_5", "12345", False),
        ("code_pass", "42", True),
        ("code_fail", "==CODE EXECUTION FAILED==\n...", True),
        ("need_reflection_loop", "no verdict yet", True),
        ("need_reflection_loop", "Verdict: stop", False),
        ("should_stop_loop", "no verdict yet", False),
        ("should_stop_loop", "VERDICT : Done", True),
        ("should_stop_loop", "Verdict: CONTINUE", False),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("condition", "text", "met"), CONDITIONS)
def test_a_condition_is_met_or_not(condition: Condition, text: str, met: bool) -> None:
    test = predicate_of(condition, Functions())
    assert callable(test)
    assert test(text) is met


CONDITION = """
graph:
  start: [A]
  end: [B]
  nodes:
    - {id: A, type: literal, config: {content: a}}
    - {id: B, type: literal, config: {content: b}}
  edges: [{from: A, to: B, condition: mine, process: {type: function, config: {name: change}}}]
"""


async def _slow(text: str) -> bool:
    return text == "a"


@pytest.mark.parametrize(
    ("condition", "runs"), [(lambda text: text != "a", False), (_slow, True), (lambda text: 1 / 0, True)]
)
def test_a_named_condition_may_take_its_time_and_one_that_breaks_counts_as_met(condition: object, runs: bool) -> None:
    functions = Functions(conditions={"mine": condition, "true": condition}, processors={"change": str.join})
    result = WorkflowDriver().run(structure(workflow(CONDITION), functions))
    assert ("B" in result.order) is runs


def test_a_function_that_nobody_knows_is_named_before_the_run() -> None:
    with pytest.raises(GraphMistake, match=r"from 'A' to 'B': there is no condition function 'mine'.*'mime'"):
        structure(workflow(CONDITION), Functions(conditions={"mime": _slow}))


def test_a_condition_that_breaks_is_told_and_a_budget_is_never_passed_over() -> None:
    def broken(text: str) -> bool:
        raise ValueError(f"no {text}")

    def used_up(_text: str) -> bool:
        raise BudgetReached("all tokens are used up")

    told: list[Notice] = []
    always = {"change": lambda text: text}
    WorkflowDriver(tell=told.append).run(
        structure(workflow(CONDITION), Functions(conditions={"mine": broken}, processors=always))
    )
    (warned,) = [each for each in told if isinstance(each, WorkflowWarning)]
    assert has_message(
        warned.message, "engine.workflow.machine.perform._is_taken", way="…'A'…", error="ValueError: no a"
    )
    result = WorkflowDriver().run(
        structure(workflow(CONDITION), Functions(conditions={"mine": used_up}, processors=always))
    )
    assert isinstance(result.error, BudgetReached)


def test_with_compat_devall_functions_that_nobody_knows_are_passed_over_and_told_once() -> None:
    told: list[Notice] = []
    result = WorkflowDriver(tell=told.append).run(structure(workflow(CONDITION, "devall")))
    assert result.order == ["A", "B"]
    assert [each.code for each in told if isinstance(each, WorkflowWarning)] == ["unknown_function", "unknown_function"]
