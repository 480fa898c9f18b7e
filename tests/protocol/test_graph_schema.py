"""The JSON Schemas agree with the readers: what one takes the other takes, and what one refuses, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.protocol.agent import agent_schema, read_agent
from callboard.protocol.graph import graph_schema, read_graph
from callboard.protocol.tree import plain
from callboard.protocol.yaml_tree import parse

AGENTS = Path(__file__).parents[1] / "fixtures" / "agents"
GRAPHS = sorted(file for file in AGENTS.glob("*/graph.yaml"))
GRAPH = jsonschema.Draft202012Validator(graph_schema())
AGENT = jsonschema.Draft202012Validator(agent_schema())


def value_of(text: str) -> Any:
    node, problems = parse(text, "f.yaml")
    assert node is not None
    assert problems == []
    return plain(node)


@pytest.mark.parametrize("schema", [graph_schema(), agent_schema()], ids=["graph", "agent"])
def test_the_schemas_are_draft_2020_12(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("file", GRAPHS, ids=lambda file: file.parent.name)
def test_the_graphs_of_the_fixtures_validate(file: Path) -> None:
    assert list(GRAPH.iter_errors(value_of(file.read_text()))) == []


@pytest.mark.parametrize("file", sorted(AGENTS.glob("*/config.yaml")), ids=lambda file: file.parent.name)
def test_the_agents_of_the_fixtures_validate(file: Path) -> None:
    assert list(AGENT.iter_errors(value_of(file.read_text()))) == []


MINIMAL = {"name": "g", "start": "a", "nodes": {"a": {"type": "end"}}}
NODES: dict[str, dict[str, Any]] = {
    "script": {"script": "s.sh"},
    "llm": {"prompt": "p"},
    "agent": {"agent": "x", "prompt": "p"},
    "approval": {"question": "q", "options": [], "routes": {}, "on_other": "a"},
    "input": {"question": "q"},
    "rag": {"documents": ["d"]},
    "map": {"over": "{{x}}", "as": "i", "branch": "a", "collect_into": "k"},
    "end": {},
}
_EVERY = {key for schema in graph_schema()["$defs"].values() for key in schema.get("properties", {})}
KEYS = sorted((_EVERY - {"type", "id"}) | {"promt", "x-note"})
VALUES: list[Any] = [
    None, True, 0, 1, -1, 1.5, "", "text", "{{x}}", "all", "yaml", [], ["a"], [1], {}, {"a": "b"}, {"a": 1},
    {"raw": "x"}, {"a": {"raw": "{{x}}"}}, {"a": ["b"]}, "continue",
]  # fmt: skip


def in_yaml(value: Any) -> str:
    """JSON is YAML."""
    return json.dumps(value)


@given(st.sampled_from(sorted(NODES)), st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2))
@settings(max_examples=400, deadline=None)
def test_the_schema_takes_a_node_if_and_only_if_the_reader_does(kind: str, extra: dict[str, Any]) -> None:
    value = {**MINIMAL, "nodes": {"a": {"type": kind, **NODES[kind], **extra}}}
    _, problems = read_graph(in_yaml(value), "g.yaml", strict=True)
    wrong = [str(problem) for problem in problems if problem.code != "ignored_key"]  # editors need not underline those
    assert GRAPH.is_valid(value) == (not wrong), wrong


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", "2.0"),
        ("version", 1.0),
        ("name", ""),
        ("globl_tools", []),
        ("settings", {"timeout": 0}),
        ("settings", {"timeuot": 1}),
        ("settings", {"compat": "v1"}),
        ("reducers", {"k": "plus"}),
        ("variables", [{"default": "x"}]),
        ("initial_state", []),
        ("nodes", {}),
        ("nodes", {"a": {"type": "foo"}}),
        ("nodes", {"a": {}}),
        ("nodes", {"a": 5}),
    ],
)
def test_both_refuse_a_broken_top_level(key: str, value: Any) -> None:
    graph = {**MINIMAL, key: value}
    assert not GRAPH.is_valid(graph)
    assert read_graph(in_yaml(graph), "g.yaml", strict=True)[0] is None


@pytest.mark.parametrize("key", ["name", "start", "nodes"])
def test_both_refuse_a_missing_key(key: str) -> None:
    graph = {name: value for name, value in MINIMAL.items() if name != key}
    assert not GRAPH.is_valid(graph)
    assert read_graph(in_yaml(graph), "g.yaml")[0] is None


AGENT_KEYS = [*agent_schema()["properties"], "nodes", "x-note"]


@given(st.dictionaries(st.sampled_from(AGENT_KEYS), st.sampled_from(VALUES), max_size=3))
@settings(max_examples=300, deadline=None)
def test_the_schema_takes_an_agent_if_and_only_if_the_reader_does(extra: dict[str, Any]) -> None:
    value = {"name": "a", **extra}
    _, problems = read_agent(in_yaml(value), "config.yaml", strict=True)
    wrong = [str(problem) for problem in problems if problem.code != "ignored_key"]  # editors need not underline those
    assert AGENT.is_valid(value) == (not wrong), wrong
