"""Loki's conformance cases D2: what the check of a graph finds. Names carry the case numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.graph_checks import check_text
from support.messages import fragment, has_message

from callboard.actors.engine.graph.compat import LOKI, STANDARD, Compat
from callboard.actors.engine.graph.findings import CheckContext, agents_in
from callboard.actors.engine.graph.validate import failure_text
from callboard.actors.runs.file_checks import own_tools
from callboard.protocol.problems import Problem, errors_in

AGENTS = Path(__file__).parents[3] / "fixtures" / "agents"

both_modes = pytest.mark.parametrize("compat", [STANDARD, LOKI], ids=["standard", "loki"])


def check(nodes: str, compat: Compat = STANDARD, around: CheckContext | None = None, top: str = "") -> list[Problem]:
    """The problems of a graph whose first node is `a`."""
    lines = "\n".join(f"  {line}" for line in nodes.strip().splitlines())
    _, problems = check_text(f"name: g\nstart: a\n{top}\nnodes:\n{lines}\n", "graph.yaml", around, compat=compat)
    return problems


def errors(nodes: str, compat: Compat = STANDARD, around: CheckContext | None = None, top: str = "") -> list[str]:
    return [problem.message for problem in errors_in(check(nodes, compat, around, top))]


def warnings(nodes: str, compat: Compat = STANDARD, top: str = "") -> list[str]:
    return [problem.message for problem in check(nodes, compat, top=top) if problem.severity == "warning"]


@both_modes
def test_d2_13_one_error_lists_all_problems(tmp_path: Path, compat: Compat) -> None:
    problems = check("a: {type: script, script: missing.sh, next: nope}", compat, CheckContext(directory=tmp_path))
    text = failure_text(problems)
    assert text.startswith("Graph validation failed with 3 error(s):\n  ")
    assert "[a] References non-existent node 'nope' in 'next'" in text
    assert "[a] Script file not found: 'missing.sh'" in text
    assert has_message(text, "engine.graph.validate._check_ends")


@both_modes
@pytest.mark.parametrize(
    ("nodes", "where"),
    [
        ("a: {type: script, script: s.sh, fallback: x}\ne: {type: end}", "script 'fallback'"),
        ("a: {type: llm, prompt: p, next: e, fallback: x}\ne: {type: end}", "llm 'fallback'"),
        ("a: {type: agent, agent: b, prompt: p, next: e, fallback: x}\ne: {type: end}", "agent 'fallback'"),
        ("a: {type: script, script: s.sh, routes: [e, x]}\ne: {type: end}", "script 'routes'"),
        (
            "a: {type: approval, question: q, options: [o], routes: {o: x}, on_other: e}\ne: {type: end}",
            "approval 'routes'",
        ),
        (
            "a: {type: approval, question: q, options: [o], routes: {o: e}, on_other: x}\ne: {type: end}",
            "approval 'on_other'",
        ),
        ("a: {type: input, question: q, timeout: 1, on_timeout: x, next: e}\ne: {type: end}", "input 'on_timeout'"),
        ("a: {type: map, over: '{{x}}', as: i, branch: x, collect_into: k, next: e}\ne: {type: end}", "map 'branch'"),
    ],
)
def test_d2_13_every_reference_is_checked(nodes: str, where: str, compat: Compat) -> None:
    assert errors(nodes, compat) == [f"References non-existent node 'x' in {where}"]


@both_modes
def test_d2_14_a_cycle(compat: Compat) -> None:
    nodes = "a: {type: script, script: s.sh, next: b}\nb: {type: script, script: s.sh, next: a}\ne: {type: end}"
    assert errors(nodes, compat) == ["Cycle detected: a -> b -> a"]
    assert [p.line for p in errors_in(check(nodes, compat))] == [6]


@both_modes
def test_d2_14_a_self_loop(compat: Compat) -> None:
    nodes = "a: {type: script, script: s.sh, next: a}\ne: {type: end}"
    assert errors(nodes, compat) == ["Cycle detected: a -> a"]


@pytest.mark.parametrize(
    "nodes",
    [
        "a: {type: llm, prompt: p, next: e, fallback: b}\nb: {type: llm, prompt: p, next: a}\ne: {type: end}",
        "a: {type: approval, question: q, options: [], routes: {}, on_other: b}\nb: {type: llm, prompt: p, next: a}",
    ],
)
def test_d2_14_fallback_and_on_other_close_a_cycle_too(nodes: str) -> None:
    assert "Cycle detected: a -> b -> a" in errors(nodes)


def test_d2_14_every_cycle_is_told() -> None:
    nodes = (
        "a: {type: script, script: s.sh, next: b, fallback: a}\n"
        "b: {type: script, script: s.sh, next: e, fallback: a}\ne: {type: end}"
    )
    assert errors(nodes) == ["Cycle detected: a -> a", "Cycle detected: a -> b -> a"]


@both_modes
def test_d2_14_a_loop_by_declared_routes_is_no_cycle(compat: Compat) -> None:
    nodes = "a: {type: llm, prompt: p, next: b}\nb: {type: script, script: s.sh, routes: [a, e]}\ne: {type: end}"
    assert check(nodes, compat) == []


@both_modes
def test_d2_15_a_diamond_is_no_cycle(compat: Compat) -> None:
    nodes = (
        "a: {type: script, script: s.sh, next: [b, c]}\n"
        "b: {type: script, script: s.sh, state_updates: {}, next: d}\n"
        "c: {type: script, script: s.sh, state_updates: {}, next: d}\n"
        "d: {type: end}"
    )
    assert check(nodes, compat) == []


@both_modes
def test_d2_16_a_node_reached_by_next_of_a_script_alone_warns(compat: Compat) -> None:
    nodes = "a: {type: script, script: s.sh, next: e}\nb: {type: script, script: s.sh, next: e}\ne: {type: end}"
    (problem,) = check(nodes, compat)
    assert problem.severity == "warning"
    assert (problem.node, problem.line, problem.column) == ("b", 6, 3)
    assert has_message(str(problem.hint), "engine.graph.validate._check_reach.2", node_id="b")
    assert check(nodes.replace("sh, next: e}", "sh, next: e, routes: [b]}", 1), compat) == []


@both_modes
def test_d2_16_no_reachable_end_warns(compat: Compat) -> None:
    nodes = "a: {type: script, script: s.sh}\ne: {type: end}"
    assert [text.split(" (")[0] for text in warnings(nodes, compat)] == [
        "No end node is reachable from start node 'a'",
        "Node 'e' is unreachable from start node 'a'",
    ]


@both_modes
def test_d2_17_options_and_routes_belong_together(compat: Compat) -> None:
    nodes = "a: {type: approval, question: q, options: [y, n], routes: {y: x, z: x}, on_other: x}\nx: {type: end}"
    assert errors(nodes, compat) == ["Approval option 'n' has no route defined"]
    assert warnings(nodes, compat) == ["Route 'z' has no corresponding option"]


@both_modes
def test_d2_18_a_rag_node_needs_documents_and_a_place_for_its_result(compat: Compat) -> None:
    nodes = "a: {type: rag, documents: [], next: e}\ne: {type: end}"
    assert errors(nodes, compat) == ["RAG node has no 'documents'; at least one knowledge source is required"]
    assert warnings(nodes, compat) == ["RAG node has no 'state_updates'; its retrieval result goes nowhere"]


@both_modes
def test_d2_19_a_cap_of_nothing(compat: Compat) -> None:
    nodes = (
        "a: {type: map, over: '{{xs}}', as: x, branch: b, collect_into: k, max_concurrency: 0, next: e}\n"
        "b: {type: script, script: s.sh}\ne: {type: end}"
    )
    found = errors(nodes, compat, top="settings: {max_concurrency: 0}\ninitial_state: {xs: []}")
    assert found == [
        "settings.max_concurrency must be >= 1 (got 0); a zero cap would deadlock the executor",
        "max_concurrency must be >= 1 (got 0); a zero cap would deadlock the executor",
    ]


def fan_out(*workers: str) -> str:
    names = [f"w{number}" for number in range(1, len(workers) + 1)]
    lines = [f"a: {{type: script, script: s.sh, next: [{', '.join(names)}]}}"]
    lines += [f"{name}: {{{worker}, next: e}}" for name, worker in zip(names, workers, strict=True)]
    return "\n".join([*lines, "e: {type: end}"])


SCRIPT = "type: script, script: s.sh, state_updates: {k: v}"


@both_modes
def test_d2_20_two_writers_of_a_key_need_a_reducer(compat: Compat) -> None:
    (message,) = errors(fan_out(SCRIPT, SCRIPT), compat)
    assert message.startswith(
        fragment("engine.graph.validate._check_writes", names="w1, w2", key="k", key_2="k", key_3="k")
    )
    assert errors(fan_out(SCRIPT, SCRIPT), compat, top="reducers: {k: append}") == []
    assert errors(fan_out(SCRIPT, SCRIPT.replace("k:", "j:")), compat) == []


@both_modes
def test_d2_20_three_writers_are_all_named(compat: Compat) -> None:
    (message,) = errors(fan_out(SCRIPT, SCRIPT, SCRIPT), compat)
    assert message.startswith(fragment("engine.graph.validate._check_writes", names="w1, w2, w3", key="k"))


@both_modes
def test_d2_21_schema_properties_are_writes(compat: Compat) -> None:
    llm = "type: llm, prompt: p, output_schema: {type: object, properties: {k: {type: string}}}"
    (message,) = errors(fan_out(llm, llm), compat)
    assert message.startswith(fragment("engine.graph.validate._check_writes", names="w1, w2", key="k"))


def test_d2_21_what_maps_collect_is_a_write_too() -> None:
    mapped = "type: map, over: '{{xs}}', as: x, branch: b, collect_into: k"
    nodes = fan_out(mapped, mapped) + "\nb: {type: script, script: s.sh}"
    (message,) = errors(nodes, STANDARD, top="initial_state: {xs: []}")
    assert message.startswith(fragment("engine.graph.validate._check_writes", names="w1, w2", key="k"))
    assert errors(nodes, LOKI, top="initial_state: {xs: []}") == []


@both_modes
def test_d2_22_a_script_in_a_fan_out_declares_its_updates(compat: Compat) -> None:
    bare = "type: script, script: s.sh"
    (problem,) = errors_in(check(fan_out(bare, f"{bare}, state_updates: {{}}"), compat))
    assert problem.node == "w1"
    assert "state_updates: {}" in str(problem.hint)
    assert check(f"a: {{{bare}, next: e}}\ne: {{type: end}}", compat) == []


@both_modes
@pytest.mark.parametrize(
    "asking",
    ["type: input, question: q", "type: approval, question: q, options: [], routes: {}, on_other: e"],
)
def test_d2_23_nobody_is_asked_in_a_fan_out(asking: str, compat: Compat) -> None:
    nodes = fan_out(asking, "type: script, script: s.sh, state_updates: {}")
    (problem,) = errors_in(check(nodes, compat))
    assert (problem.node, problem.key) == ("a", "nodes.a.next[0]")
    after = (
        "a: {type: script, script: s.sh, next: [b, c]}\n"
        "b: {type: script, script: s.sh, state_updates: {}, next: d}\n"
        "c: {type: script, script: s.sh, state_updates: {}, next: d}\n"
        f"d: {{{asking}, next: e}}\ne: {{type: end}}"
    )
    assert errors(after, compat) == []


@both_modes
def test_d2_24_a_sibling_does_not_read_what_a_sibling_writes(compat: Compat) -> None:
    reader = 'type: llm, prompt: "{{topic}}"'
    writer = "type: script, script: s.sh, state_updates: {topic: x}"
    (problem,) = errors_in(check(fan_out(reader, writer), compat))
    assert problem.message.startswith(
        "node 'w1' reads state key(s) `topic` which sibling parallel branch 'w2' writes in the same super-step"
    )
    assert problem.key == "nodes.w1.prompt"


@both_modes
def test_d2_24_scoped_names_are_no_reads(compat: Compat) -> None:
    one = 'type: llm, prompt: p, state_updates: {x: "{{output}}"}'
    other = "type: script, script: s.sh, state_updates: {output: x}"
    assert errors(fan_out(one, other), compat) == []


BRANCHES = {
    "approval": "type: approval, question: q, options: [], routes: {}, on_other: e",
    "input": "type: input, question: q",
    "end": "type: end",
    "map": "type: map, over: '{{xs}}', as: y, branch: c, collect_into: k2",
}


def mapped(branch: str) -> str:
    return (
        "a: {type: map, over: '{{xs}}', as: x, branch: b, collect_into: k, next: e}\n"
        f"b: {{{branch}}}\nc: {{type: script, script: s.sh}}\ne: {{type: end}}"
    )


@both_modes
@pytest.mark.parametrize("kind", list(BRANCHES))
def test_d2_25_what_a_map_branch_can_not_be(kind: str, compat: Compat) -> None:
    (message,) = errors(mapped(BRANCHES[kind]), compat)
    assert message.startswith(f"map branch 'b' is of type {kind}")


@both_modes
def test_d2_25_updates_of_a_branch_are_its_output_key(compat: Compat) -> None:
    (message,) = errors(mapped("type: llm, prompt: p, state_updates: {finding: x}"), compat)
    assert has_message(message, "engine.graph.validate._check_result", key="finding")
    assert "'output'" in message
    nodes = mapped("type: llm, prompt: p, state_updates: {finding: x}").replace(
        "collect_into: k,", "collect_into: k, output_key: finding,", 1
    )
    assert errors(nodes, compat) == []


def test_d2_25_a_branch_with_next_is_a_chain_in_standard_and_an_error_in_loki() -> None:
    nodes = mapped("type: script, script: s.sh, next: c")
    assert errors(nodes, STANDARD) == []
    assert errors(nodes, LOKI) == ["map branch 'b' has `next`, but a map's branch is a single node"]


def test_d2_25_a_chain_stays_inside_its_branch() -> None:
    (message,) = errors(mapped("type: script, script: s.sh, next: e"))
    assert message.startswith("'e' in the map's branch is of type end")
    nodes = mapped("type: script, script: s.sh, next: [c, d]") + "\nd: {type: script, script: s.sh, state_updates: {}}"
    assert "'b' fanned out to [c, d]; a map branch must route to a single node" in "\n".join(errors(nodes))


@both_modes
def test_d2_26_the_shipped_agents(compat: Compat) -> None:
    for name, unreachable, nodes in (("coder", 9, 11), ("deep-research", 1, 17)):
        home = AGENTS / name
        text = (home / "graph.yaml").read_text()
        around = CheckContext(directory=home, agents=agents_in(AGENTS), own_tools=own_tools(home)[0])
        graph, problems = check_text(text, "graph.yaml", around, compat=compat)
        assert graph is not None
        assert len(graph.nodes) == nodes
        assert problems == []
        without_routes = re.sub(r"^    routes: \[.*\]\n", "", text, flags=re.MULTILINE)
        graph, problems = check_text(without_routes, "graph.yaml", around, compat=compat)
        assert graph is not None
        assert [problem.code for problem in problems] == ["unreachable"] * unreachable


@both_modes
def test_d2_27_tools_servers_and_models_of_an_llm_node(tmp_path: Path, compat: Compat) -> None:
    nodes = 'a: {type: llm, prompt: p, tools: [nope, "mcp:nope"], model: "x:y", next: e}\ne: {type: end}'
    top = "global_tools: [fs_cat.sh, fs_ls.sh]\nmcp_servers: []"
    around = CheckContext(directory=tmp_path, models=lambda model: "no such client" if model == "x:y" else None)
    assert errors(nodes, compat, around, top) == [
        fragment("engine.graph.node_checks._check_tools.4", tool="nope", name="g", known="fs_cat, fs_ls…"),
        "llm node references unknown MCP server 'mcp:nope'. Agent 'g' has MCP servers: []",
        "llm node references unknown model 'x:y'",
    ]
    assert errors(nodes, compat, None, top) == []


@pytest.mark.parametrize("tool", ["fs_cat", "fs_cat.sh", "mcp:srv", "mcp_invoke_srv", "user__ask"])
def test_d2_27_the_tools_a_node_may_list(tmp_path: Path, tool: str) -> None:
    nodes = f'a: {{type: llm, prompt: p, tools: ["{tool}"], next: e}}\ne: {{type: end}}'
    top = "global_tools: [fs_cat.sh]\nmcp_servers: [srv]"
    assert errors(nodes, STANDARD, CheckContext(directory=tmp_path), top) == []


def test_d2_27_spawning_tools_need_an_agent_node(tmp_path: Path) -> None:
    asking = "a: {type: llm, prompt: p, tools: [agent__spawn], next: b}"
    nodes = f"{asking}\nb: {{type: script, script: s.sh, next: e}}\ne: {{type: end}}"
    (tmp_path / "s.sh").touch()
    around = CheckContext(directory=tmp_path)
    assert errors(nodes, STANDARD, around)[0].startswith(
        fragment("engine.graph.node_checks._check_tools.4", tool="agent__spawn")
    )
    assert errors(nodes.replace("script, script: s.sh", "agent, agent: x, prompt: p"), STANDARD, around) == []


def test_d2_27_a_node_may_list_what_the_tools_file_defines(tmp_path: Path) -> None:
    nodes = "a: {type: llm, prompt: p, tools: [classify], next: e}\ne: {type: end}"
    assert errors(nodes, STANDARD, CheckContext(directory=tmp_path, own_tools=["classify"])) == []
    (error,) = errors(nodes, STANDARD, CheckContext(directory=tmp_path, own_tools=["classfy"]))
    assert error.startswith(
        fragment("engine.graph.node_checks._check_tools.4", tool="classify", name="g", known="classfy…")
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "Agent 'x' not found (directory missing)"),
        ([], "Agent 'x' has neither a config.yaml nor a graph.yaml"),
        (["config.yaml", "graph.yaml"], "Agent 'x' has both config.yaml and graph.yaml"),
        (["config.yaml"], None),
    ],
)
def test_the_agent_of_an_agent_node_exists(tmp_path: Path, files: list[str] | None, message: str | None) -> None:
    for file in files if files is not None else []:
        (tmp_path / "x").mkdir(exist_ok=True)
        (tmp_path / "x" / file).touch()
    if files == []:
        (tmp_path / "x").mkdir()
    nodes = "a: {type: agent, agent: x, prompt: p, next: e}\ne: {type: end}"
    assert errors(nodes, STANDARD, CheckContext(agents=agents_in(tmp_path))) == ([message] if message else [])


def test_a_map_over_the_plural_of_its_item_is_no_slip_of_the_pen() -> None:
    nodes = """\
a: {type: script, script: s.sh, next: m}
m: {type: map, over: "{{parts}}", as: part, branch: b, collect_into: r, next: e}
b: {type: llm, prompt: "{{part}}"}
e: {type: end}"""
    assert [text for text in warnings(nodes) if "'parts'" in text] == []


def test_a_template_that_reads_a_variable_is_told_who_sees_variables() -> None:
    nodes = "a: {type: llm, prompt: '{{tone}}', next: e}\ne: {type: end}"
    (found,) = check(nodes, top="variables: [{name: tone, description: how, default: mild}]")
    assert (found.code, found.hint and found.hint.startswith("only scripts can read variables")) == (
        "unknown_key_read",
        True,
    )


UNEVEN = """\
a: {type: script, script: s.sh, next: [b, c]}
b: {type: script, script: s.sh, state_updates: {}, next: j}
c: {type: script, script: s.sh, state_updates: {}, next: d}
d: {type: script, script: s.sh, next: j}
j: {type: end}"""


# --- what Loki's validator does not look for --------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("a: {type: script, script: s.rb, next: e}\ne: {type: end}", "Unsupported script extension '.rb' for 's.rb'"),
        ("a: {type: script, script: run, next: e}\ne: {type: end}", "Script has no file extension: 'run'"),
        ("a: {type: llm, prompt: p}\ne: {type: end}", "llm node 'a' has no `next` and is not an end node"),
        (
            "a: {type: input, question: q, validation: 'len(x) > 1', next: e}\ne: {type: end}",
            "Unsupported validation expression 'len(x) > 1'; only `len(input) OP N` is supported",
        ),
    ],
)
def test_what_is_certain_to_fail_is_an_error_in_standard_and_a_warning_in_loki(nodes: str, message: str) -> None:
    assert message in errors(nodes, STANDARD)
    assert errors(nodes, LOKI) == []
    assert message in warnings(nodes, LOKI)


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        ("a: {type: script, script: s.sh, next: []}\ne: {type: end}", "no_exit"),
        (
            "a: {type: approval, question: q, options: [], routes: {}, on_other: e, next: e}\ne: {type: end}",
            "no_effect",
        ),
        ("a: {type: end, next: a}", "no_effect"),
        ("a: {type: input, question: q, on_timeout: e, next: e}\ne: {type: end}", "no_effect"),
        ("a: {type: llm, prompt: '{{initial_promt}}', next: e}\ne: {type: end}", "unknown_key_read"),
        ("a: {type: llm, prompt: '{{ initial_prompt }}', next: e}\ne: {type: end}", "template_spaces"),
        (fan_out("type: end", "type: script, script: s.sh, state_updates: {}"), "end_in_fan_out"),
        (
            UNEVEN,
            "uneven_join",
        ),
    ],
)
def test_what_is_probably_not_meant_warns_and_fails_when_strict(nodes: str, code: str) -> None:
    found = check(nodes)
    assert errors_in(found) == []
    assert code in [problem.code for problem in found]
    lines = "\n".join(f"  {line}" for line in nodes.splitlines())
    graph, problems = check_text(f"name: g\nstart: a\nnodes:\n{lines}\n", "graph.yaml", strict=True)
    assert graph is None
    assert code in [problem.code for problem in errors_in(problems)]


def test_join_all_answers_the_uneven_branches() -> None:
    assert check(UNEVEN.replace("j: {type: end}", "j: {type: end, join: all}")) == []


def test_raw_updates_are_a_single_path() -> None:
    nodes = 'a: {type: llm, prompt: p, state_updates: {k: {raw: "x {{output}}"}}, next: e}\ne: {type: end}'
    (message,) = errors(nodes)
    assert has_message(message, "engine.graph.node_checks._check_updates")


def test_a_problem_that_only_echoes_another_is_not_told() -> None:
    nodes = "a: {type: approval, question: q, options: 5, routes: {x: e}, on_other: e}\nb: {type: foo}\ne: {type: end}"
    assert [problem.code for problem in check(nodes)] == ["wrong_type", "unknown_type"]


def test_problems_of_reading_and_of_meaning_come_together() -> None:
    nodes = "a: {type: llm, promt: p, next: nope}\ne: {type: end, output: 5}"
    assert [problem.code for problem in check(nodes)] == ["missing_key", "unknown_key", "missing_node", "wrong_type"]


def test_a_graph_of_thousands_of_nodes_is_checked_without_recursion() -> None:
    nodes = [f"a{n}: {{type: script, script: s.sh, next: a{n + 1}}}" for n in range(1500)]
    nodes[0] = "a: {type: script, script: s.sh, next: a1}"
    assert check("\n".join([*nodes, "a1500: {type: end}"])) == []


def test_a_next_of_an_end_node_is_told_on_its_line() -> None:
    graph, problems = check_text("name: g\nstart: a\nnodes: {a: {type: end, next: b}}", "graph.yaml")
    assert graph is not None
    assert [(p.code, p.line) for p in problems] == [("no_effect", 3)]
