"""Files of cases: what they say, and what is wrong with them, by line."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.protocol.cases import BadPath, Cases, PathMissing, cases_schema, read_cases, value_at
from callboard.protocol.problems import Problem

WHOLE = """\
defaults:
  model: openai:gpt-4o-mini
  limits: {max_cost: 0.1}
cases:
  - name: greets by name
    prompt: Ann
    variables: {tone: plain}
    answers: {ok: yes}
    expect:
      output: {contains: [Ann, Hello], lacks: Bob, matches: "^Hello"}
      json: {"items[0].name": Ann, "$.n": {at_least: 3}}
      schema: {type: object}
      nodes: [plan, write]
      visits: {review: 0}
      calls: [{tool: look_up, arguments: {name: {one_of: [Ann, Bob]}}, times: 1}]
      no_calls: [execute_command]
      asks: ["Send it?"]
      at_most: {cost: 0.01, turns: 3, tokens: 4000, tool_calls: 2, seconds: 30}
      judge: [{rubric: It is friendly., model: openai:gpt-4o}]
  - name: fails
    expect: {error: budget_reached}
"""


def read(text: str) -> Cases:
    cases, problems = read_cases(text, "tests.yaml")
    assert cases is not None, problems
    assert problems == []
    return cases


def problems_of(text: str) -> list[Problem]:
    cases, problems = read_cases(text, "tests.yaml")
    assert cases is None
    return problems


def test_a_file_says_what_is_run_and_what_is_expected() -> None:
    greets, fails = read(WHOLE).cases
    assert (greets.prompt, greets.expect.nodes, greets.expect.at_most.turns) == ("Ann", ("plan", "write"), 3)
    assert greets.expect.calls[0].arguments == {"name": {"one_of": ["Ann", "Bob"]}}
    assert (fails.prompt, fails.expect.error) == ("", "budget_reached")


A, EXPECT = "cases:\n  - name: a\n", "cases:\n  - name: a\n    expect:\n      "


@pytest.mark.parametrize(
    ("text", "line", "code", "key"),
    [
        ("cases: []\n", 1, "no_cases", "cases"),
        ("cases:\n  - prompt: x\n", 2, "missing_key", "cases[0].name"),
        (A + "    expects: {}\n", 3, "unknown_key", "cases[0].expects"),
        (A + "  - name: a\n", 3, "duplicate_case", "cases[1].name"),
        (A + "    answers: yes\n", 3, "wrong_type", "cases[0].answers"),
        (A + "    cassette: true\n", 3, "wrong_type", "cases[0].cassette"),
        (EXPECT + "outptu: x\n", 4, "unknown_key", "cases[0].expect.outptu"),
        (EXPECT + 'output: {matches: "("}\n', 4, "bad_pattern", "cases[0].expect.output.matches"),
        (EXPECT + "output: {contains: x, lack: y}\n", 4, "unknown_key", "cases[0].expect.output"),
        (EXPECT + 'json:\n        "a[": 1\n', 5, "bad_path", "cases[0].expect.json.a["),
        (EXPECT + "output: {at_least: many}\n", 4, "wrong_type", "cases[0].expect.output.at_least"),
        (EXPECT + "output: {one_of: x}\n", 4, "wrong_type", "cases[0].expect.output.one_of"),
        (EXPECT + "at_most: {cost: -1}\n", 4, "out_of_range", "cases[0].expect.at_most.cost"),
        (EXPECT + "status: done\n      error: x\n", 4, "contradiction", "cases[0].expect.status"),
        ("- a\n", 1, "not_a_mapping", None),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value and "\n" not in value else None,
)
def test_what_is_not_understood_is_an_error_with_its_line_and_key(
    text: str, line: int, code: str, key: str | None
) -> None:
    found = [(problem.severity, problem.line, problem.code, problem.key) for problem in problems_of(text)]
    assert ("error", line, code, key) in found


def test_all_problems_of_a_file_are_told_at_once() -> None:
    text = "cases:\n  - nmae: a\n    expect: {outptu: x}\n  - name: b\n    prompt: 3\n"
    assert [problem.line for problem in problems_of(text)] == [2, 2, 3, 5]


def test_the_schema_takes_what_the_reader_takes() -> None:
    import yaml

    jsonschema.validate(yaml.safe_load(WHOLE), cases_schema())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", {"b": [{"c d": 1}, {"c d": 2}]}),
        ("$.a.b[1]['c d']", 2),
        ('a.b[-1]["c d"]', 2),
        ("a.b[*]['c d']", [1, 2]),
        ("", {"a": {"b": [{"c d": 1}, {"c d": 2}]}}),
    ],
)
def test_a_path_leads_to_a_value(path: str, value: Any) -> None:
    assert value_at({"a": {"b": [{"c d": 1}, {"c d": 2}]}}, path) == value


@pytest.mark.parametrize("path", ["b", "a.c", "a.b[2]", "a[*]", "a.b[0].x"])
def test_where_nothing_is_a_path_says_so(path: str) -> None:
    with pytest.raises(PathMissing):
        value_at({"a": {"b": [{"c d": 1}, {"c d": 2}]}}, path)


@given(st.text(max_size=20))
def test_any_text_is_a_path_or_is_none(text: str) -> None:
    with suppress(BadPath, PathMissing):
        value_at({"a": [1]}, text)


@given(st.text(alphabet="cases:\n -name{}[]expect 0", max_size=80))
def test_any_text_is_a_file_of_cases_or_says_what_is_wrong(text: str) -> None:
    cases, problems = read_cases(text, "x")
    assert cases is not None or problems
