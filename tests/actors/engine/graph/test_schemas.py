"""The `output_schema` of nodes: what is none is an error of the file, with its place."""

from __future__ import annotations

import pytest
from support.graph_checks import check_text

GRAPH = """\
name: g
start: a
nodes:
  a: {type: %s, next: d, output_schema:
    %s}
  d: {type: end, output: ok}
"""

SLIPS = {
    "topic: text": ("properties: {topic: text}", 26),
    "objekt": ("type: objekt", 12),
    "a list": ("properties: [topic]", 18),
    "a pattern": ("properties: {a: {pattern: '[a-z'}}", 32),
    "a reference": ("properties: {a: {$ref: '#/$defs/b'}}", 29),
    "required": ("type: object, required: topic", 30),
}


@pytest.mark.parametrize("kind", ["llm, prompt: x", "agent, agent: w, prompt: x"])
@pytest.mark.parametrize(("schema", "column"), SLIPS.values(), ids=SLIPS)
def test_a_schema_that_is_none_is_told_with_its_place(kind: str, schema: str, column: int) -> None:
    found, problems = check_text(GRAPH % (kind, f"{{{schema}}}"), "g.yaml")
    assert found is None
    (problem,) = (problem for problem in problems if problem.severity == "error")
    assert (problem.code, problem.line) == ("bad_schema", 5)
    assert problem.column == column


@pytest.mark.parametrize(
    "schema",
    [
        r"{type: object, properties: {name: {type: string, pattern: '^\p{L}+$'}, year: {pattern: '(?<y>\d+)'}}}",
        "{type: array, items: [{type: number}, {type: string}]}",
        "{type: number, minimum: 0, exclusiveMinimum: true}",
        "{$ref: '#/$defs/a', $defs: {a: {type: string}}}",
        "{}",
    ],
)
def test_a_schema_of_any_draft_is_one(schema: str) -> None:
    _, problems = check_text(GRAPH % ("llm, prompt: x", schema), "g.yaml")
    assert [problem for problem in problems if problem.severity == "error"] == []
