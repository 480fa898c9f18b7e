"""Laws of reading: no file makes it fail, what it gives is whole, and what it says can be found."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.workflow_files import GOOD, KNOWN, keys_of

from callboard.protocol.workflow import Workflow, read_workflow
from callboard.protocol.workflow.cycles import components, cycles_of, successors
from callboard.protocol.workflow.schema import workflow_schema

KEYS = st.sampled_from(sorted(keys_of(workflow_schema()) | {"processor", "source", "vars", "x-note", "promt"}))
WORDS = [
    *("a", "b", "agent", "human", "literal", "passthrough", "python", "python_runner", "loop_counter", "loop_timer"),
    *(
        "subgraph",
        "config",
        "file",
        "keyword",
        "regex",
        "function",
        "regex_extract",
        "template",
        "map",
        "tree",
        "lines",
    ),
    *(
        "json_path",
        "simple",
        "blackboard",
        "reflection",
        "mcp_local",
        "${A}",
        "x ${B} y",
        "$${A}",
        "(",
        "\\\\s",
        "yes",
        "3",
    ),
    *("", " ", "true", "false", "gen", "post_gen", "openai", "DEBUG", "seconds", "1e400", "\u2028"),
]
SCALARS = st.one_of(
    st.sampled_from(WORDS),
    st.integers(-3, 200),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.text(max_size=4),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=5),
    max_leaves=20,
)
IDS = st.sampled_from(["a", "b", "c", "node_1"])
BLOCK = st.fixed_dictionaries({}, optional={"type": st.sampled_from(WORDS), "config": JSON})
NODE = st.fixed_dictionaries(
    {"id": IDS | JSON, "type": st.sampled_from(WORDS)}, optional={"config": JSON, "context_window": JSON, "input": JSON}
)
EDGE = st.fixed_dictionaries(
    {"from": IDS, "to": IDS},
    optional={
        "trigger": st.booleans(),
        "condition": BLOCK | SCALARS,
        "process": BLOCK | JSON,
        "dynamic": BLOCK | JSON,
        "carry_data": st.booleans(),
    },
)
GRAPH = st.fixed_dictionaries(
    {"nodes": st.lists(NODE, max_size=5) | JSON, "edges": st.lists(EDGE, max_size=6) | JSON},
    optional={"start": JSON, "end": JSON, "memory": st.lists(BLOCK, max_size=2) | JSON, "is_majority_voting": JSON},
)
FILE = st.fixed_dictionaries(
    {"graph": GRAPH | JSON}, optional={"vars": st.dictionaries(st.sampled_from("AB"), JSON) | JSON, "compat": JSON}
)


def load(path: str, parent: str) -> tuple[str, str]:
    if path == "":
        raise FileNotFoundError(path)
    return yaml.safe_dump({"graph": {"nodes": [{"id": "x", "type": "subgraph"}]}}), path


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(FILE | st.dictionaries(KEYS, JSON, max_size=5))
def test_any_mapping_gives_a_workflow_or_says_why_not(value: dict[str, Any]) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    lines = text.splitlines()
    for compat in ("standard", "devall"):
        workflow, problems = read_workflow(text, "f.yaml", compat=compat, known=KNOWN, environ={"A": "1"}, load=load)
        assert (workflow is None) == any(problem.severity == "error" for problem in problems)
        for problem in problems:
            assert problem.file != "f.yaml" or 0 <= problem.line <= len(lines) + 1
            assert str(problem)


PIECES = GOOD.split("\n")


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=3),
    st.sampled_from(["", "  x: 1", "- a", "    to: a"]),
)
def test_a_good_file_with_lines_lost_or_replaced_never_makes_reading_fail(lost: list[int], instead: str) -> None:
    text = "\n".join(instead if i in lost else line for i, line in enumerate(PIECES))
    workflow, problems = read_workflow(text, "f.yaml", known=KNOWN)
    assert (workflow is None) == any(problem.severity == "error" for problem in problems)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of everything inside of a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from paths(item, (*path, key))


WHOLE = yaml.safe_load(GOOD)


@pytest.mark.parametrize("examples", [40, pytest.param(1_000, marks=pytest.mark.soak)])
def test_a_good_file_with_anything_in_the_place_of_a_value_never_makes_reading_fail(examples: int) -> None:
    @settings(deadline=None, max_examples=examples)
    @given(st.sampled_from(list(paths(WHOLE))), JSON | BLOCK)
    def law(path: tuple[Any, ...], instead: Any) -> None:
        value = copy.deepcopy(WHOLE)
        parent = functools.reduce(operator.getitem, path[:-1], value)
        parent[path[-1]] = instead
        text = yaml.safe_dump(value, sort_keys=False)
        for compat in ("standard", "devall"):
            workflow, problems = read_workflow(text, "f.yaml", compat=compat, known=KNOWN, environ={}, load=load)
            assert (workflow is None) == any(problem.severity == "error" for problem in problems)

    law()


def literal(name: str) -> dict[str, Any]:
    return {"id": name, "type": "literal", "config": {"content": "x"}}


EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.booleans()), max_size=16)


def chart(edges: list[tuple[int, int, bool]]) -> Workflow:
    nodes = [literal(f"n{i}") for i in range(8)]
    pairs = [{"from": f"n{a}", "to": f"n{b}", "trigger": trigger} for a, b, trigger in edges]
    graph = {"start": ["n0"], "end": ["n7"], "nodes": nodes, "edges": pairs}
    workflow, problems = read_workflow(yaml.safe_dump({"graph": graph}), "f.yaml")
    assert workflow is not None, problems
    return workflow


@settings(deadline=None, max_examples=60)
@given(EDGES)
def test_nodes_are_on_a_cycle_exactly_if_they_can_come_back_to_themselves(edges: list[tuple[int, int, bool]]) -> None:
    graph = chart(edges).graph
    reach = {(a, b) for a, b, _ in edges}
    for _ in range(8):
        reach |= {(a, d) for a, b in reach for c, d in reach if b == c}
    on_cycle = {key for members in cycles_of(graph) for key in members}
    assert on_cycle == {f"n{i}" for i in range(8) if (i, i) in reach}
    for members in cycles_of(graph):
        together = {(int(a[1:]), int(b[1:])) for a in members for b in members}
        assert together <= reach


@settings(deadline=None, max_examples=50)
@given(EDGES)
def test_components_hold_every_node_once(edges: list[tuple[int, int, bool]]) -> None:
    after = successors([str(i) for i in range(8)], [(str(a), str(b)) for a, b, _ in edges])
    assert sorted(key for members in components(after) for key in members) == [str(i) for i in range(8)]


def test_a_workflow_can_be_encoded() -> None:
    workflow, _ = read_workflow(GOOD, "f.yaml", known=KNOWN)
    assert workflow is not None
    assert msgspec.json.decode(msgspec.json.encode(workflow))["graph"]["id"] == "newsroom"


LENGTHS = pytest.mark.parametrize("length", [3_000, pytest.param(10_000, marks=pytest.mark.soak)])
"""Python recurses to 1,000."""


@LENGTHS
def test_thousands_of_nodes_in_a_row_are_read_without_recursion(length: int) -> None:
    nodes = "".join(f"  - {{id: n{i}, type: passthrough, config: {{}}}}\n" for i in range(length))
    edges = "".join(f"  - {{from: n{i}, to: n{i + 1}}}\n" for i in range(length - 1))
    workflow, problems = read_workflow(f"graph:\n  nodes:\n{nodes}  edges:\n{edges}", "long.yaml")
    assert problems == []
    assert workflow is not None
    assert (workflow.graph.start, len(workflow.graph.edges)) == (("n0",), length - 1)


@LENGTHS
def test_thousands_of_nodes_in_a_circle_too(length: int) -> None:
    nodes = "".join(f"  - {{id: n{i}, type: passthrough, config: {{}}}}\n" for i in range(length))
    edges = "".join(f"  - {{from: n{i}, to: n{(i + 1) % length}}}\n" for i in range(length))
    workflow, problems = read_workflow(
        f"graph:\n  start: n0\n  end: n0\n  nodes:\n{nodes}  edges:\n{edges}", "round.yaml"
    )
    assert workflow is not None
    assert [problem.code for problem in problems] == ["endless_cycle"]
