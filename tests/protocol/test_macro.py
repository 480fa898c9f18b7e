"""The files of macros, their variables and their steps; and files that strangers wrote."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import says

from callboard.protocol.errors import UsageError
from callboard.protocol.macro import Macro, macro_schema, read_macro
from callboard.protocol.problems import Problem

BUILD = """\
variables:
  - name: target
  - name: flags
    rest: true
    default: ''
steps:
  - .info
  - make {{target}} {{flags}}
"""

EXAMPLE = """\
variables:                  # as Loki's own example has them
  - name: positional_1
    default: null
    rest: false
  - name: positional_2
    default: '2'
    rest: false
  - name: remaining
    rest: true
steps:
  - .agent {{positional_1}}
  - What is 2 + {{positional_2}}?
  - '{{remaining}}'
"""


def read(text: str) -> tuple[Macro, list[Problem]]:
    macro, problems = read_macro(text, "macros/build.yaml", "build")
    assert macro is not None, problems
    return macro, problems


def test_the_rest_of_the_arguments_is_one_value() -> None:
    macro, problems = read(BUILD)
    assert (problems, macro.usage) == ([], "build <target> [flags]...")
    assert macro.bound(["a", "b", "c"]) == {"target": "a", "flags": "b c"}
    assert macro.bound(["a"]) == {"target": "a", "flags": ""}
    with pytest.raises(UsageError) as caught:
        macro.bound([])
    assert re.fullmatch(
        says("protocol.macro.Macro.bound", name="target", usage="build <target> [flags]..."), str(caught.value)
    )


def test_lokis_example_is_read() -> None:
    macro, problems = read(EXAMPLE)
    assert (problems, macro.usage) == ([], "build <positional_1> [positional_2] <remaining>...")
    values = macro.bound(["sql", "3", "which", "tables?"])
    assert macro.rendered(values) == (".agent sql", "What is 2 + 3?", "which tables?")
    with pytest.raises(UsageError, match=says("protocol.macro.Macro.bound", name="remaining")):
        macro.bound(["sql", "3"])


def test_a_value_is_not_looked_at_again() -> None:
    macro, _ = read("variables: [{name: a}, {name: b}]\nsteps: ['{{a}} {{b}}']")
    assert macro.rendered(macro.bound(["{{b}}", "x\n.exit"])) == ("{{b}} x\n.exit",)


def test_arguments_that_no_variable_takes_are_left_over() -> None:
    macro, _ = read("variables: [{name: a}]\nsteps: [x]")
    assert macro.unused_arguments(["1", "2", "3"]) == ["2", "3"]
    assert read(BUILD)[0].unused_arguments(["1", "2", "3"]) == ()
    assert read("steps: [x]")[0].unused_arguments(["1"]) == ["1"]


def test_numbers_are_texts_where_a_default_stands() -> None:
    macro, problems = read("variables: [{name: n, default: 2}]\nsteps: ['{{n}}']")
    assert (problems, macro.bound([])) == ([], {"n": "2"})


def test_what_is_odd_is_a_warning_with_its_line() -> None:
    text = "stepz: 1\nvariables:\n- {name: a, rest: true}\n- {name: b}\nsteps:\n- '{{c}} {{a}}'\n- ''\n"
    macro, problems = read(text)
    assert [(each.line, each.code) for each in problems] == [
        (1, "unknown_key"),
        (3, "rest_not_last"),
        (6, "unknown_variable"),
        (7, "empty_step"),
    ]
    assert macro.problems == tuple(problems)
    assert macro.bound(["1", "2"]) == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 0, "the file is empty"),
        ("- a\n", 1, "the file holds a list"),
        ("steps: x\n", 1, "`steps` is the text 'x'"),
        ("steps: []\n", 1, "the macro has no steps"),
        ("description: x\n", 1, "missing field `steps`"),
        ("steps:\n- a\n- {b: c}\n", 3, "`steps[1]` is a mapping"),
        ("steps:\n- a\n- 3\n", 3, "`steps[1]` is the number 3"),
        ("variables: [{default: x}]\nsteps: [a]\n", 1, "missing field `name`"),
        ("variables:\n- name: a\n- name: a\nsteps: [a]\n", 3, "two variables are called 'a'"),
        ("variables:\n- name: '{a}'\nsteps: [a]\n", 2, "no step can refer to a variable called '{a}'"),
        ("variables: {a: b}\nsteps: [a]\n", 1, "`variables` is a mapping"),
        ("steps: [\n", 2, "YAML parsing error"),
    ],
)
def test_an_error_has_its_line(text: str, line: int, words: str) -> None:
    macro, problems = read_macro(text, "m.yaml", "m")
    assert macro is None
    first = next(problem for problem in problems if problem.severity == "error")
    assert words in first.message
    assert (first.file, first.line) == ("m.yaml", line)


def test_the_schema_has_the_keys_and_nothing_of_ours() -> None:
    assert set(macro_schema()["properties"]) == {"description", "isolated", "variables", "steps"}


@given(st.text(alphabet=st.sampled_from("-\n: {}[]steparibl'\"#&*!|>0"), max_size=50))
@settings(max_examples=200, deadline=None)
def test_no_text_breaks_the_reader(text: str) -> None:
    macro, problems = read_macro(text, "m.yaml", "m")
    assert (macro is None) == any(each.severity == "error" for each in problems)
