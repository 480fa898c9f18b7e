"""`${NAME}`: where it is looked up, what it becomes, and what is said when it stands for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.protocol.problems import Problem
from callboard.protocol.workflow import Mode, Workflow, read_workflow
from callboard.protocol.workflow.model import LiteralConfig


def read(
    content: str, before: str = "", compat: Mode = "standard", **how: Any
) -> tuple[Workflow | None, list[Problem]]:
    text = (
        f"{before}graph:\n  start: a\n  nodes:\n  - id: a\n    type: literal\n"
        f"    context_window: 0\n    config: {{content: {content}}}\n"
    )
    return read_workflow(text, "wf.yaml", compat=compat, **how)


def content(*given: Any, **how: Any) -> str:
    workflow, problems = read(*given, **how)
    assert workflow is not None, problems
    config = workflow.graph.nodes[0].config
    assert isinstance(config, LiteralConfig)
    return config.content


def test_a_variable_of_the_file_wins_over_the_environment() -> None:
    assert content('"<${X}>"', "vars: {X: file}\n", environ={"X": "environment"}) == "<file>"


def test_what_the_caller_says_wins_over_the_file() -> None:
    assert content('"<${X}>"', "vars: {X: file}\n", variables={"X": "caller"}) == "<caller>"


def test_the_environment_has_what_the_file_lacks() -> None:
    assert content('"<${X}>"', environ={"X": "environment"}) == "<environment>"


def test_variables_refer_to_variables() -> None:
    assert content('"${A}!"', "vars: {A: '${B}b', B: '${C}c', C: d}\n") == "dcb!"


def test_a_text_inside_of_another_is_written_as_python_writes_it() -> None:
    assert content('"${A} ${B} ${C} ${D}"', "vars: {A: 1, B: true, C: null, D: [1, x]}\n") == "1 True None [1, 'x']"


def test_a_whole_reference_keeps_its_type() -> None:
    text = "vars: {N: 7, S: [a], F: false}\ngraph:\n  start: ${S}\n  nodes:\n  - {id: a, type: passthrough, "
    text += 'context_window: "${N}", log_output: " ${F} ", config: {}}\n'
    workflow, problems = read_workflow(text, "wf.yaml")
    assert problems == []
    assert workflow is not None
    (node,) = workflow.graph.nodes
    assert (node.context_window, node.log_output, workflow.graph.start) == (7, False, ("a",))


def test_a_whole_block_may_be_a_variable() -> None:
    text = "vars:\n  CONFIG: {content: hello}\ngraph:\n  nodes:\n  - {id: a, type: literal, config: '${CONFIG}'}\n"
    workflow, _ = read_workflow(text, "wf.yaml")
    assert workflow is not None
    assert workflow.graph.nodes[0].config == LiteralConfig(content="hello")
    assert workflow.vars == {"CONFIG": {"content": "hello"}}


@pytest.mark.parametrize("text", ["${a-b}", "$X", "{X}", "${}", "$ {X}", "${X"])
def test_what_is_no_name_stays(text: str) -> None:
    assert content(f"'{text}'") == text


def test_two_dollars_are_the_text_itself() -> None:
    assert content("'cost: $${X}, $${Y}'") == "cost: ${X}, ${Y}"
    assert content("'$${X}'") == "${X}"


def test_the_program_knows_no_escape() -> None:
    assert content("'$${X}'", "vars: {X: 1}\n", "devall") == "$1"


def test_a_variable_may_take_its_own_name_from_the_environment() -> None:
    assert content("'${X}'", "vars: {X: '${X}'}\n", environ={"X": "there"}) == "there"


def test_the_program_calls_that_a_cycle() -> None:
    workflow, problems = read("'${X}'", "vars: {X: '${X}'}\n", "devall", environ={"X": "there"})
    assert workflow is None
    assert [problem.code for problem in problems] == ["variable_cycle"]


def test_a_cycle_names_the_way_round() -> None:
    _, problems = read("'${A}'", "vars:\n  A: ${B}\n  B: ${C}\n  C: ${A}\n")
    assert [(problem.code, problem.line) for problem in problems] == [("variable_cycle", 4)]
    assert "A -> B -> C -> A" in problems[0].message


def test_an_unset_variable_is_named_with_the_place_of_its_use_and_the_ways_to_set_it() -> None:
    workflow, problems = read("'ask ${KEX}'", "vars: {KEY: 1}\n", environ={})
    assert workflow is None
    (problem,) = problems
    assert (problem.line, problem.key) == (8, "graph.nodes[0].config.content")
    assert "`${KEX}`" in problem.message
    assert problem.hint is not None
    for way in ("did you mean 'KEY'?", "vars: {KEX: ...}", "--var KEX=...", "`KEX=...` in .env", "`$${KEX}`"):
        assert way in problem.hint


def test_every_use_of_an_unset_variable_is_told_and_nothing_else_about_it() -> None:
    text = "graph:\n  nodes:\n  - {id: a, type: literal, context_window: '${N}', config: {content: '${C}'}}\n"
    _, problems = read_workflow(text, "wf.yaml", environ={})
    assert [problem.code for problem in problems] == ["unknown_variable", "unknown_variable"]


def test_an_unset_variable_that_nothing_uses_is_told_too() -> None:
    _, problems = read("x", "vars:\n  A: ${NO}\n", environ={})
    assert [(problem.code, problem.line, problem.key) for problem in problems] == [("unknown_variable", 2, "vars.A")]


def test_a_value_of_the_wrong_type_is_a_mistake_of_the_line_that_uses_it() -> None:
    _, problems = read("'${N}'", "vars:\n  N: 2\n")
    assert [(problem.code, problem.line) for problem in problems] == [("wrong_type", 9)]


def test_doubling_variables_are_stopped() -> None:
    lines = "".join(f"  V{i}: ${{V{i + 1}}}${{V{i + 1}}}\n" for i in range(40))
    _, problems = read("x", f"vars:\n{lines}  V40: {'long ' * 20}\n")
    assert "too_large" in {problem.code for problem in problems}


def test_doubling_lists_are_stopped() -> None:
    lines = "".join(f"  V{i}: ['${{V{i + 1}}}', '${{V{i + 1}}}']\n" for i in range(40))
    _, problems = read("x", f"vars:\n{lines}  V40: x\n")
    assert "too_large" in {problem.code for problem in problems}


def test_variables_that_nest_too_deep_are_stopped() -> None:
    lines = "".join(f"  V{i}: {'[' * 9}'${{V{i + 1}}}'{']' * 9}\n" for i in range(45))
    _, problems = read("x", f"vars:\n{lines}  V45: x\n")
    assert "too_deep" in {problem.code for problem in problems}


def test_a_long_row_of_variables_is_stopped() -> None:
    lines = "".join(f"  V{i}: ${{V{i + 1}}}\n" for i in range(500))
    _, problems = read("x", f"vars:\n{lines}  V500: x\n")
    assert {problem.code for problem in problems} == {"too_deep"}
