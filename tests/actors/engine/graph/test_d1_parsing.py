"""Loki's conformance cases D1: what a graph.yaml is, and how it is refused. Names carry the case numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import pytest
from support.messages import has_message

from callboard.actors.engine.graph.findings import agents_in
from callboard.protocol.graph import (
    AgentNode,
    ApprovalNode,
    EndNode,
    Graph,
    LlmNode,
    MapNode,
    Node,
    RagNode,
    ScriptNode,
    Settings,
    read_graph,
)
from callboard.protocol.problems import Problem

N = TypeVar("N", bound=Node)

MINIMAL = "name: g\nstart: a\nnodes: {a: {type: end, output: hi}}"


def graph_of(text: str) -> Graph:
    graph, problems = read_graph(text, "graph.yaml")
    assert [problem for problem in problems if problem.code != "ignored_key"] == []
    assert graph is not None
    return graph


def node_of(graph: Graph, node_id: str, cls: type[N]) -> N:
    node = graph.nodes[node_id]
    assert isinstance(node, cls)
    return node


def only_problem(text: str, **options: Any) -> Problem:
    graph, problems = read_graph(text, "graph.yaml", **options)
    assert len(problems) == 1, [str(problem) for problem in problems]
    assert (graph is None) == (problems[0].severity == "error")
    return problems[0]


def test_d1_01_the_smallest_graph() -> None:
    graph = graph_of(MINIMAL)
    assert graph.version == "1.0"
    assert graph.nodes == {"a": EndNode(id="a", output="hi")}


def test_d1_02_an_unknown_version() -> None:
    problem = only_problem(MINIMAL.replace("name: g", 'name: g\nversion: "2.0"'))
    assert has_message(problem.message, "protocol.graph._check_top.4", version="2.0", supported="1.0")
    assert (problem.line, problem.column) == (2, 10)


def test_d1_03_an_empty_name() -> None:
    assert has_message(only_problem(MINIMAL.replace("name: g", 'name: ""')).message, "protocol.graph._check_top")


@pytest.mark.parametrize("nodes", ["{}", ""])
def test_d1_04_no_nodes(nodes: str) -> None:
    assert has_message(
        only_problem(f"name: g\nstart: a\nnodes: {nodes}").message, "protocol.graph._check_top.6", name="g"
    )


def test_d1_05_a_start_that_is_no_node() -> None:
    problem = only_problem("name: g\nstart: zz\nnodes:\n  b: {type: end}\n  a: {type: end}")
    assert has_message(problem.message, "protocol.graph._check_top.9", start="zz", name="g", ids="b, a")


def test_d1_05_a_start_that_is_nearly_a_node() -> None:
    problem = only_problem("name: g\nstart: finnish\nnodes: {finish: {type: end}}")
    assert has_message(problem.hint, "protocol.problems.suggestion", name="finish")


def test_d1_06_an_id_that_is_not_the_key() -> None:
    problem = only_problem("name: g\nstart: a\nnodes: {a: {id: b, type: end}}")
    assert has_message(problem.message, "protocol.graph._node.4", key="a", id="b")
    assert problem.node == "a"


def test_d1_07_an_unknown_type() -> None:
    problem = only_problem("name: g\nstart: a\nnodes: {a: {type: foo}}")
    assert problem.message.startswith("YAML parsing error:")
    assert problem.hint is not None
    assert problem.hint.startswith("Hint")
    for kind in ("script", "approval", "input", "llm", "rag", "map", "agent", "end"):
        assert kind in problem.hint


def test_d1_07_a_type_that_is_nearly_one() -> None:
    assert has_message(
        str(only_problem("name: g\nstart: a\nnodes: {a: {type: scrpt, script: s.sh}}")),
        "protocol.problems.suggestion",
        name="script",
    )


@pytest.mark.parametrize(
    ("node", "missing", "required"),
    [
        ("type: llm", "prompt", ["prompt"]),
        ("type: script", "script", ["script"]),
        ("type: agent, agent: x", "prompt", ["agent", "prompt"]),
        ("type: rag", "documents", ["documents"]),
        ("type: input", "question", ["question"]),
        ("type: approval, question: q, options: [], routes: {}", "on_other", ["question", "options", "routes"]),
        ("type: map, over: x, as: y, branch: z", "collect_into", ["over", "as", "branch", "collect_into"]),
        ("id: a", "type", ["script", "llm", "map"]),
    ],
)
def test_d1_08_a_missing_field(node: str, missing: str, required: list[str]) -> None:
    problem = only_problem(f"name: g\nstart: a\nnodes:\n  a: {{{node}}}")
    assert problem.message.startswith(f"YAML parsing error: missing field `{missing}`")
    assert (problem.line, problem.column, problem.node, problem.key) == (4, 3, "a", f"nodes.a.{missing}")
    assert problem.hint is not None
    assert all(name in problem.hint for name in required)


@pytest.mark.parametrize("key", ["name", "start", "nodes"])
def test_d1_08_a_missing_field_of_the_graph(key: str) -> None:
    text = "\n".join(line for line in MINIMAL.splitlines() if not line.startswith(key))
    assert only_problem(text).message.startswith(f"YAML parsing error: missing field `{key}`")


def test_d1_09_an_unknown_reducer() -> None:
    problem = only_problem(f"{MINIMAL}\nreducers: {{k: plus}}")
    assert problem.message.startswith("YAML parsing error:")
    for name in ("append", "extend", "concat", "sum", "max", "min", "merge", "overwrite"):
        assert name in str(problem)


@pytest.mark.parametrize(("written", "targets"), [("x", ("x",)), ("[x]", ("x",)), ("[x, y]", ("x", "y")), ("[]", ())])
def test_d1_10_next_is_a_text_or_a_list(written: str, targets: tuple[str, ...]) -> None:
    graph = graph_of(
        f"name: g\nstart: a\nnodes: {{a: {{type: script, script: s.sh, next: {written}}}, x: {{type: end}}, "
        "y: {type: end}}"
    )
    assert graph.nodes["a"].next == targets


def test_d1_10_no_next_is_not_an_empty_one() -> None:
    assert graph_of(MINIMAL).nodes["a"].next is None


@pytest.mark.parametrize("settings", ["settings: {}", "settings:", ""])
def test_d1_11_defaults_of_the_settings(settings: str) -> None:
    found = graph_of(f"{MINIMAL}\n{settings}").settings
    assert found == Settings(
        max_loop_iterations=100, timeout=None, log_state_snapshots=True, validate_before_run=True, max_concurrency=8
    )
    assert found.compat == "standard"


def test_d1_11_defaults_of_the_nodes() -> None:
    graph = graph_of(
        "name: g\nstart: s\nnodes:\n"
        "  s: {type: script, script: s.sh}\n"
        "  l: {type: llm, prompt: p}\n"
        "  m: {type: map, over: '{{x}}', as: i, branch: l, collect_into: k}\n"
        "  a: {type: agent, agent: x, prompt: p}\n"
        "  r: {type: rag, documents: [d]}\n"
        "  e: {type: end}\n"
    )
    llm, mapped = node_of(graph, "l", LlmNode), node_of(graph, "m", MapNode)
    assert node_of(graph, "s", ScriptNode).timeout == 30
    assert (llm.max_attempts, llm.max_iterations, llm.timeout, llm.tools) == (1, 10, None, ())
    assert (mapped.output_key, mapped.max_concurrency) == ("output", None)
    assert node_of(graph, "a", AgentNode).timeout == 300
    assert node_of(graph, "r", RagNode).timeout == 120
    assert node_of(graph, "r", RagNode).query == "{{initial_prompt}}"
    assert node_of(graph, "e", EndNode).output == ""


@pytest.mark.parametrize(
    ("files", "seen"),
    [
        (["graph.yaml"], "found"),
        (["config.yaml"], "found"),
        (["config.yaml", "graph.yaml"], "both"),
        ([], "empty"),
        (None, "missing"),
    ],
)
def test_d1_12_what_stands_at_an_agents_name(tmp_path: Path, files: list[str] | None, seen: str) -> None:
    if files is not None:
        (tmp_path / "x").mkdir()
        for file in files:
            (tmp_path / "x" / file).touch()
    assert agents_in(tmp_path)("x") == seen


def test_d1_12_an_unknown_key_warns() -> None:
    problem = only_problem("name: g\nstart: a\nnodes:\n  a:\n    type: llm\n    prompt: p\n    promt: q\n")
    assert (problem.severity, problem.line, problem.column) == ("warning", 7, 5)
    assert has_message(problem.hint, "protocol.problems.suggestion", name="prompt")


def test_d1_12_an_unknown_key_is_an_error_when_strict() -> None:
    assert only_problem(f"{MINIMAL}\nglobl_tools: []", strict=True).severity == "error"


def test_d1_12_a_key_of_another_type_says_whose_it_is() -> None:
    problem = only_problem("name: g\nstart: a\nnodes: {a: {type: end, tools: [x]}}")
    assert has_message(problem.hint, "protocol.reading.Reading.unknown_key", key="tools", key_2="llm nodes")


def test_keys_that_start_with_x_are_the_authors_own() -> None:
    graph_of("name: g\nx-any: &d {output: hi}\nstart: a\nnodes: {a: {type: end, <<: *d, x-note: 1}}")


# --- values of the wrong type -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "key", "expected", "hint"),
    [
        ("type: end, output: 5", "output", "text", '"5"'),
        ("type: end, output: true", "output", "text", '"true"'),
        ("type: end, output: [a]", "output", "text", "text"),
        ("type: script, script: s.sh, timeout: '30'", "timeout", "a number", "remove the quotes: 30"),
        ("type: script, script: s.sh, timeout: 1m", "timeout", "a number", "a number of seconds: 60"),
        ("type: script, script: s.sh, timeout: 1.5 h", "timeout", "a number", "a number of seconds: 5400"),
        ("type: script, script: s.sh, timeout: soon", "timeout", "a number", "write a number."),
        ("type: script, script: s.sh, timeout: 0", "timeout", "greater than 0", "default"),
        ("type: script, script: s.sh, timeout: -1.5", "timeout", "greater than 0", "default"),
        ("type: script, script: ''", "script", "not empty", "not empty"),
        ("type: llm, prompt: p, max_attempts: 1.5", "max_attempts", "a whole number", "whole number"),
        ("type: llm, prompt: p, max_attempts: 0", "max_attempts", "at least 1", "at least 1"),
        ("type: llm, prompt: p, tools: fs_cat", "tools", "a list of texts", "[fs_cat]"),
        ("type: llm, prompt: p, tools: [1]", "tools[0]", "text", '"1"'),
        ("type: llm, prompt: p, output_schema: text", "output_schema", "a mapping", "a mapping"),
        ("type: llm, prompt: p, next: {a: b}", "next", "text, or a list of texts", "list"),
        ("type: llm, prompt: p, state_updates: {k: 5}", "state_updates.k", "text or a mapping with `raw`", '"5"'),
        ("type: llm, prompt: p, state_updates: [k]", "state_updates", "a mapping", "a mapping"),
        ("type: llm, prompt: p, join: al", "join", "all, any", "did you mean 'all'?"),
        ("type: llm, prompt: p, on_error: ignore", "on_error", "collect, continue, fail", "one of"),
        ("type: agent, agent: a, prompt: p, teammates: yes", "teammates", "true or false", "true or false"),
    ],
)
def test_a_value_of_the_wrong_type_is_never_bent(node: str, key: str, expected: str, hint: str) -> None:
    problem = only_problem(f"name: g\nstart: a\nnodes:\n  a: {{{node}}}")
    assert problem.message.startswith("YAML parsing error:")
    assert problem.key == f"nodes.a.{key}"
    assert problem.line == 4
    assert problem.column > 6
    assert expected in str(problem.expected)
    assert hint in str(problem.hint)


def test_options_that_are_numbers_are_each_refused() -> None:
    text = "name: g\nstart: a\nnodes:\n  a: {type: approval, question: q, options: [1, 2], routes: {}, on_other: a}"
    graph, problems = read_graph(text, "graph.yaml")
    assert graph is None
    assert [problem.key for problem in problems] == ["nodes.a.options[0]", "nodes.a.options[1]"]
    assert all(has_message(str(problem.hint), "protocol.reading._remedy.2", quoted='"…') for problem in problems)


def test_an_unquoted_version_is_a_number() -> None:
    problem = only_problem(f"version: 1.0\n{MINIMAL}")
    assert "the number 1.0" in problem.message
    assert '"1.0"' in str(problem.hint)


def test_bare_yes_and_no_are_options_like_any_other() -> None:
    graph = graph_of(
        "name: g\nstart: a\nnodes:\n"
        "  a: {type: approval, question: q, options: [yes, no], routes: {yes: b, no: b}, on_other: b}\n"
        "  b: {type: end}"
    )
    assert node_of(graph, "a", ApprovalNode).routes == {"yes": "b", "no": "b"}


def test_a_key_without_a_value_counts_as_not_given() -> None:
    graph = graph_of("name: g\nglobal_tools:\nstart: a\nnodes: {a: {type: end, output: , next: null}}")
    assert graph.global_tools == ()
    assert graph.nodes["a"] == EndNode(id="a")


def test_all_problems_of_a_file_are_told_at_once_in_its_order() -> None:
    text = (
        "name: ''\nversion: '9'\nstart: zz\nsettings: {timeout: x}\nnodes:\n"
        "  a: {type: foo}\n  b: {type: llm}\n  c: {type: end, output: 5, otput: 6}\n"
    )
    _, problems = read_graph(text, "graph.yaml")
    assert [problem.line for problem in problems] == [1, 2, 3, 4, 6, 7, 8, 8]


def test_every_field_of_every_source_is_accepted() -> None:
    graph_of(
        """\
name: g
reasoning_effort: low
skills_enabled: true
enabled_skills: [a]
inject_skill_instructions: false
skill_instructions: s
mcp_tools: {srv: [a, b]}
can_spawn_agents: true
max_concurrent_jobs: 2
max_concurrent_agents: 12
max_agent_depth: 4
variables: [{name: dir, description: d, default: "."}]
reducers: {k: append}
settings: {compat: loki, max_concurrency: 4, max_loop_iterations: 0, timeout: 1.5}
start: s
nodes:
  s: {type: script, script: s.sh, routes: [l], on_error: continue, join: all, state_updates: {a: {raw: "{{x}}"}}}
  l: {type: llm, prompt: p, reasoning_effort: high, skills_enabled: false, enabled_skills: [], mcp_tools: {srv: [a]}}
  a: {type: agent, agent: x, prompt: p, inputs: {v: "{{x}}"}, teammates: true, max_attempts: 2, fallback: e}
  i: {type: input, question: q, timeout: 5, on_timeout: e, next: e}
  p: {type: approval, question: q, options: [a], routes: {a: e}, on_other: e, timeout: 5, on_timeout: e}
  r: {type: rag, documents: [d], extractor_model: m, extractor_prompt: p, graph_hops: 1, driver: duckdb}
  m: {type: map, over: "{{xs}}", as: x, branch: l, collect_into: k, max_concurrency: "{{n}}"}
  e: {type: end, join: all}
"""
    )
