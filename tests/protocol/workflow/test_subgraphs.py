"""Graphs inside of graphs: inline, in files of their own, and what is said of them."""

from __future__ import annotations

from typing import Any

from callboard.protocol.problems import Problem
from callboard.protocol.workflow import Workflow, read_workflow
from callboard.protocol.workflow.model import Graph, LiteralConfig, SubgraphConfig

LEAF = "graph:\n  nodes:\n  - {id: leaf, type: literal, config: {content: '${WORD}'}}\n"


def uses(*paths: str, vars: str = "") -> str:
    nodes = "".join(
        f"  - {{id: s{i}, type: subgraph, config: {{type: file, config: {{path: {path}}}}}}}\n"
        for i, path in enumerate(paths)
    )
    starts = ", ".join(f"s{i}" for i in range(len(paths)))
    return f"{vars}graph:\n  start: [{starts}]\n  end: [s0]\n  nodes:\n{nodes}"


def read(text: str, files: dict[str, str], **how: Any) -> tuple[Workflow | None, list[Problem]]:
    asked.clear()

    def load(path: str, parent: str) -> tuple[str, str]:
        asked.append((path, parent))
        if path not in files:
            raise FileNotFoundError(f"tried ./{path}")
        return files[path], path

    return read_workflow(text, "main.yaml", load=load, environ={}, **how)


asked: list[tuple[str, str]] = []


def inner(workflow: Workflow | None, *ids: int) -> Graph:
    assert workflow is not None
    graph = workflow.graph
    for i in ids:
        config = graph.nodes[i].config
        assert isinstance(config, SubgraphConfig)
        assert config.graph is not None
        graph = config.graph
    return graph


def word(graph: Graph) -> str:
    config = graph.nodes[0].config
    assert isinstance(config, LiteralConfig)
    return config.content


def test_a_file_sees_the_variables_of_the_file_that_refers_to_it_below_its_own() -> None:
    workflow, problems = read(uses("leaf.yaml", vars="vars: {WORD: outer}\n"), {"leaf.yaml": LEAF})
    assert problems == []
    assert word(inner(workflow, 0)) == "outer"
    own = {"leaf.yaml": f"vars: {{WORD: own}}\n{LEAF}"}
    assert word(inner(read(uses("leaf.yaml", vars="vars: {WORD: outer}\n"), own)[0], 0)) == "own"


def test_a_file_may_leave_graph_out() -> None:
    workflow, problems = read(uses("leaf.yaml"), {"leaf.yaml": "nodes:\n- {id: a, type: human, config: {}}\n"})
    assert problems == []
    assert inner(workflow, 0).start == ("a",)


def test_a_file_may_have_several_ends_without_naming_them() -> None:
    two = "graph:\n  start: [a, b]\n  nodes: [{id: a, type: human, config: {}}, {id: b, type: human, config: {}}]\n"
    assert read(uses("two.yaml"), {"two.yaml": two})[1] == []


def test_the_way_to_a_file_begins_at_the_file_that_names_it() -> None:
    files = {"sub/mid.yaml": uses("leaf.yaml", vars="vars: {WORD: x}\n"), "leaf.yaml": LEAF}
    workflow, problems = read(uses("sub/mid.yaml"), files)
    assert problems == []
    assert asked == [("sub/mid.yaml", "main.yaml"), ("leaf.yaml", "sub/mid.yaml")]
    assert inner(workflow, 0, 0).source.file == "leaf.yaml"


def test_without_a_way_to_files_they_are_not_looked_at() -> None:
    workflow, problems = read_workflow(uses("leaf.yaml"), "main.yaml")
    assert problems == []
    assert workflow is not None
    assert workflow.graph.nodes[0].config == SubgraphConfig(file="leaf.yaml")


def test_a_missing_file_is_told_where_it_is_named_with_where_it_was_looked_for() -> None:
    workflow, (problem,) = read(uses("nope.yaml"), {})
    assert workflow is None
    assert (problem.code, problem.line, problem.node) == ("missing_file", 5, "s0")
    assert "tried ./nope.yaml" in problem.message


def test_a_mistake_in_a_file_is_told_with_that_files_name_and_once() -> None:
    bad = LEAF.replace("type: literal", "type: litteral")
    workflow, problems = read(uses("leaf.yaml", "leaf.yaml", vars="vars: {WORD: x}\n"), {"leaf.yaml": bad})
    assert workflow is None
    assert [(p.code, p.file, p.line) for p in problems] == [("unknown_type", "leaf.yaml", 3)]


def test_an_unset_variable_of_a_file_is_told_there() -> None:
    _, problems = read(uses("leaf.yaml"), {"leaf.yaml": LEAF})
    assert [(p.code, p.file, p.line) for p in problems] == [("unknown_variable", "leaf.yaml", 3)]


def test_a_file_that_contains_itself_is_told_with_the_way_round() -> None:
    workflow, problems = read(uses("a.yaml"), {"a.yaml": uses("b.yaml"), "b.yaml": uses("a.yaml")})
    assert workflow is None
    assert [p.code for p in problems] == ["endless_subgraph"]
    assert "main.yaml -> a.yaml -> b.yaml -> a.yaml" in problems[0].message


def test_files_that_lead_ever_deeper_are_stopped() -> None:
    class Endless(dict[str, str]):
        def __contains__(self, path: object) -> bool:
            return True

        def __missing__(self, path: str) -> str:
            return uses(f"{int(path.split('.')[0]) + 1}.yaml")

    workflow, problems = read(uses("1.yaml"), Endless())
    assert workflow is None
    assert [p.code for p in problems] == ["too_many_subgraphs"]


def test_files_that_double_are_read_once_each() -> None:
    files = {f"{i}.yaml": uses(f"{i + 1}.yaml", f"{i + 1}.yaml") for i in range(1, 30)} | {"30.yaml": LEAF}
    workflow, problems = read(uses("1.yaml", vars="vars: {WORD: x}\n"), files)
    assert problems == []
    assert word(inner(workflow, *[0] * 30)) == "x"


def test_mistakes_of_an_inline_graph_name_the_way_to_the_node() -> None:
    text = (
        "graph:\n  nodes:\n  - id: review\n    type: subgraph\n    config:\n      type: config\n      config:\n"
        "        nodes:\n        - {id: writer, type: agent, config: {provider: openai}}\n        edges: []\n"
    )
    workflow, (problem,) = read(text, {})
    assert workflow is None
    assert (problem.code, problem.line, problem.node) == ("missing_key", 9, "review/writer")
    assert problem.key == "graph.nodes[0].config.config.nodes[0].config.name"


def test_an_inline_graph_inherits_the_level_of_the_log() -> None:
    text = (
        "graph:\n  log_level: ERROR\n  nodes:\n  - id: s\n    type: subgraph\n    config:\n      type: config\n"
        "      config:\n        nodes: [{id: a, type: human, config: {}}]\n        edges: []\n"
    )
    workflow, problems = read(text, {})
    assert problems == []
    assert inner(workflow, 0).log_level == "ERROR"


def test_a_mistake_inside_does_not_hide_those_around_it() -> None:
    text = (
        "graph:\n  start: s\n  nodes:\n  - id: s\n    type: subgraph\n    config:\n      type: config\n      config:\n"
        "        nodes: [{id: a, type: human, config: {}}, {id: b, type: human, config: {}}]\n        edges: []\n"
        "  - {id: t, type: human, context_window: x, config: {}}\n"
    )
    _, problems = read(text, {})
    assert [(problem.code, problem.line) for problem in problems] == [
        ("no_end", 2),
        ("no_start", 9),
        ("no_end", 9),
        ("wrong_type", 11),
    ]


def test_a_file_of_a_subgraph_does_not_choose_the_dialect() -> None:
    workflow, problems = read(uses("leaf.yaml"), {"leaf.yaml": f"compat: devall\nvars: {{WORD: x}}\nnote: x\n{LEAF}"})
    assert workflow is not None
    assert [(p.code, p.file, p.line) for p in problems] == [
        ("unused_key", "leaf.yaml", 1),
        ("unknown_key", "leaf.yaml", 3),
    ]
