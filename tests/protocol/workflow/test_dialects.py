"""What a file says in the words of the guide, of the program, and what becomes of it in each dialect."""

from __future__ import annotations

from typing import Any

import pytest
from support.messages import has_message
from support.workflow_files import GOOD, KNOWN

from callboard.protocol.workflow import DEVALL, STANDARD, Mode, Workflow, read_workflow
from callboard.protocol.workflow.model import (
    AgentConfig,
    Always,
    ByArray,
    ByDelimiter,
    ByLines,
    ByMatch,
    ByMessage,
    Condition,
    Dynamic,
    Edge,
    FunctionCondition,
    HumanConfig,
    KeywordCondition,
    LiteralConfig,
    Never,
    PythonConfig,
    RegexCondition,
    RegexExtract,
    Seed,
    Template,
)


def whole(text: str, compat: Mode | None = None) -> Workflow:
    workflow, problems = read_workflow(text, "wf.yaml", compat=compat, environ={})
    assert workflow is not None, problems
    return workflow


def codes(text: str, compat: Mode | None = None) -> list[str]:
    return [problem.code for problem in read_workflow(text, "wf.yaml", compat=compat, environ={})[1]]


def edge_text(keys: str) -> str:
    return (
        "graph:\n  start: a\n  nodes:\n  - {id: a, type: literal, config: {content: x}}\n"
        f"  - {{id: b, type: passthrough, config: {{}}}}\n  edges:\n  - {{from: a, to: b, {keys}}}\n"
    )


def edge(keys: str, compat: Mode | None = None) -> Edge:
    return whole(edge_text(keys), compat).graph.edges[0]


def node_text(kind: str, config: str, more: str = "") -> str:
    return f"graph:\n  start: a\n  nodes:\n  - {{id: a, type: {kind}, config: {{{config}}}}}\n{more}"


def config(kind: str, keys: str, compat: Mode | None = None, more: str = "") -> Any:
    return whole(node_text(kind, keys, more), compat).graph.nodes[0].config


# --- which dialect ----------------------------------------------------------------------------------------


def test_a_file_is_read_by_the_standard_dialect_unless_it_or_the_caller_says_otherwise() -> None:
    assert whole(GOOD).dialect == STANDARD
    assert whole(f"compat: devall\n{GOOD}").dialect == DEVALL
    assert whole(f"compat: devall\n{GOOD}", "standard").dialect == STANDARD
    assert whole(GOOD, "devall").compat == "devall"


@pytest.mark.parametrize("compat", ["standard", "devall"])
def test_a_file_that_both_documents_agree_on_has_no_problem_in_either_dialect(compat: Mode) -> None:
    workflow, problems = read_workflow(GOOD, "newsroom.yaml", compat=compat, known=KNOWN, strict=True)
    assert workflow is not None
    assert problems == []


# --- conditions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", Always()),
        ("condition: null", Always()),
        ("condition: true", Always()),
        ('condition: "true"', Always()),
        ("condition: false", Never()),
        ("condition: {type: function, config: {name: always_false}}", FunctionCondition(name="always_false")),
        ("condition: is_polite", FunctionCondition(name="is_polite")),
        ("condition: {type: keyword, config: {any: DONE}}", KeywordCondition(any=("DONE",))),
        ("condition: {type: keyword, config: {none: [A, B]}}", KeywordCondition(none=("A", "B"))),
    ],
)
@pytest.mark.parametrize("compat", ["standard", "devall"])
def test_a_condition_has_one_form_however_it_is_written(written: str, read: Condition, compat: Mode) -> None:
    assert edge(written, compat).condition == read


def test_the_text_false_is_false_and_in_the_program_the_name_of_a_function() -> None:
    assert edge('condition: "false"').condition == Never()
    assert edge('condition: "false"', "devall").condition == FunctionCondition(name="false")


def test_the_guides_regex_condition_and_keyword_all() -> None:
    written = "condition: {type: regex, config: {pattern: '^RESULT', flags: [IGNORECASE]}}"
    assert edge(written).condition == RegexCondition(pattern="^RESULT", flags=("IGNORECASE",))
    assert "unknown_type" in codes(edge_text(written), "devall")
    words = "condition: {type: keyword, config: {all: [A, B], any: [C]}}"
    assert edge(words).condition == KeywordCondition(all=("A", "B"), any=("C",))
    assert edge(words, "devall").condition == KeywordCondition(any=("C",))


# --- processors -------------------------------------------------------------------------------------------


def test_the_guides_processor_is_the_programs_process() -> None:
    written = "processor: {type: regex_extract, config: {pattern: 'x(.)', group: '1'}}"
    assert edge(written).process == RegexExtract(pattern="x(.)", group=1)
    assert codes(edge_text(written)) == ["other_spelling"]
    assert edge(written, "devall").process is None
    assert codes(edge_text(written), "devall") == ["ignored_key"]


def test_the_guides_templates() -> None:
    written = "process: {type: template, config: {template: 'USER: {{content}}'}}"
    assert edge(written).process == Template(template="USER: {{content}}")
    assert codes(edge_text(written), "devall") == ["unknown_type"]
    assert codes(edge_text("process: {type: template, config: {template: 'no hole'}}")) == ["fixed_template"]


def test_a_template_names_the_output_or_a_node() -> None:
    good = "process: {type: template, config: {template: '{{content}} {{content.key}} {{ a }} {{b[0].x}}'}}"
    assert codes(edge_text(good)) == []
    _, problems = read_workflow(edge_text(good.replace("content.key", "contents")), "wf.yaml")
    assert [(problem.code, problem.hint) for problem in problems] == [("fixed_template", "did you mean 'content'?")]


# --- map and tree -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "split"),
    [
        ("split_type: json_array", ByArray()),
        ("split_type: lines", ByLines()),
        ("split_type: regex, pattern: '---'", ByDelimiter(pattern="---")),
        ("max_parallel: 2", ByMessage()),
    ],
)
def test_the_guides_ways_to_split(keys: str, split: Any) -> None:
    dynamic = edge(f"dynamic: {{type: map, config: {{{keys}, item_name: patient}}}}").dynamic
    assert dynamic is not None
    assert (dynamic.split, dynamic.item_name) == (split, "patient")


def test_the_programs_split_by_regex_keeps_what_matches() -> None:
    dynamic = edge("dynamic: {type: map, split: {type: regex, config: {pattern: 'x+', group: 0}}}").dynamic
    assert dynamic == Dynamic(type="map", split=ByMatch(pattern="x+", group=0))


def test_the_program_takes_split_type_for_nothing() -> None:
    written = "dynamic: {type: map, config: {split_type: lines}}"
    assert edge(written, "devall").dynamic == Dynamic(type="map", split=ByMessage())
    assert codes(edge_text(written), "devall") == ["ignored_key"]


def test_a_tree_of_one_unit_is_warned_of_where_it_does_not_run() -> None:
    assert codes(edge_text("dynamic: {type: tree}")) == []
    assert codes(edge_text("dynamic: {type: tree}"), "devall") == ["tree_of_one"]


def role_text(role: str) -> str:
    agent = f"{{provider: openai, name: m, role: '{role}'}}"
    text = edge_text("dynamic: {type: map, config: {item_name: patient}}")
    return text.replace("type: passthrough, config: {}", f"type: agent, config: {agent}")


def test_a_role_may_name_the_unit_and_nothing_else() -> None:
    assert codes(role_text("See {{patient}} at once, {{ patient.name }}, {{item[0].age}}. Not {{ }} or {{a b}}.")) == []
    _, problems = read_workflow(role_text("See {{pateint}} at once."), "wf.yaml")
    assert [(problem.code, problem.line) for problem in problems] == [("fixed_template", 5)]
    assert has_message(problems[0].hint, "protocol.problems.suggestion", name="patient")
    assert codes(role_text("See {{patient}} at once."), "devall") == ["fixed_template", "ignored_key"]


def test_a_tree_has_no_unit_to_be_named() -> None:
    tree = role_text("See {{patient}} at once.").replace("type: map", "type: tree")
    assert codes(tree) == ["fixed_template", "unused_key"]


def test_a_pattern_beside_no_split_type_is_told() -> None:
    written = "dynamic: {type: map, config: {pattern: x}}"
    assert codes(edge_text(written)) == ["unused_key"]
    assert codes(edge_text(written), "devall") == ["ignored_key"]


def test_maps_of_one_node_have_to_agree() -> None:
    text = edge_text("dynamic: {type: map}") + "  - {from: a, to: b, dynamic: {type: map, config: {max_parallel: 2}}}\n"
    workflow, problems = read_workflow(text, "wf.yaml")
    assert workflow is None
    assert [(problem.code, problem.line) for problem in problems] == [("unlike_maps", 8)]
    assert "max_parallel" in problems[0].message


# --- edges ------------------------------------------------------------------------------------------------


def test_half_a_clear_does_what_each_document_says() -> None:
    for compat, does in (("standard", "has no effect"), ("devall", "only the kept")):
        _, problems = read_workflow(edge_text("clear_kept_context: true"), "wf.yaml", compat=compat)
        assert [problem.code for problem in problems] == ["half_clear"]
        assert does in problems[0].message


def test_two_edges_between_one_pair_both_count_and_in_the_program_the_later_overwrites_in_place() -> None:
    text = edge_text("condition: is_polite")
    text = text.replace("  edges:", "  - {id: c, type: passthrough, config: {}}\n  edges:").replace(
        "  start: a", "  start: a\n  end: [b]"
    )
    text += "  - {from: a, to: c}\n  - {from: a, to: b, keep_message: true}\n"
    standard, devall = whole(text).graph.edges, whole(text, "devall").graph.edges
    assert [each.target for each in standard] == ["b", "c", "b"]
    assert [(each.target, each.keep_message, each.condition) for each in devall] == [
        ("b", True, Always()),
        ("c", False, Always()),
    ]


# --- nodes ------------------------------------------------------------------------------------------------


def test_memories_are_what_the_guide_says_and_in_the_program_what_it_does() -> None:
    store = "  memory: [{name: m, type: simple, config: {embedding: {provider: openai, model: e}}}]\n"
    keys = "provider: openai, name: m, memories: [{name: m}]"
    (use,) = config("agent", keys.replace("name: m}", "name: m, read: true}"), more=store).memories
    assert (use.top_k, use.similarity_threshold, use.read, use.write, use.retrieve_stage) == (
        10,
        0.5,
        True,
        False,
        None,
    )
    (use,) = config("agent", keys.replace("name: m}", "name: m, read: true}"), "devall", more=store).memories
    assert (use.top_k, use.similarity_threshold, use.read, use.write, use.retrieve_stage) == (3, -1.0, True, True, None)


@pytest.mark.parametrize("compat", ["standard", "devall"])
def test_a_memory_that_would_do_nothing_does_what_the_program_makes_of_it(compat: str) -> None:
    store = "  memory: [{name: m, type: simple, config: {embedding: {provider: openai, model: e}}}]\n"
    keys = "provider: openai, name: m, memories: [{name: m}]"
    (use,) = config("agent", keys, compat, more=store).memories
    assert (use.top_k, use.similarity_threshold, use.read, use.write, use.retrieve_stage) == (3, -1.0, True, True, None)


def test_people_have_memories_and_in_the_program_none() -> None:
    store = "  memory: [{name: m, type: blackboard, config: {}}]\n"
    keys = "memories: [{name: m, read: true, retrieve_stage: gen}]"
    human = config("human", keys, more=store)
    assert isinstance(human, HumanConfig)
    assert [(use.name, use.retrieve_stage) for use in human.memories] == [("m", ("gen",))]
    assert config("human", keys, "devall", more=store) == HumanConfig()


def test_literals_of_role_system() -> None:
    assert config("literal", "content: x, role: ' System '") == LiteralConfig(content="x", role="system")
    assert codes(node_text("literal", "content: x, role: system"), "devall") == ["unknown_value"]


def test_python_runner_is_python_and_may_have_code_of_its_own() -> None:
    node = whole(node_text("python_runner", "timeout_seconds: 5, inline_code: print(1)")).graph.nodes[0]
    assert node.type == "python"
    assert node.config == PythonConfig(timeout_seconds=5, code="print(1)")
    assert codes(node_text("python_runner", ""), "devall") == ["unknown_type"]
    assert config("python", "code: print(1)", "devall") == PythonConfig()


def test_arguments_and_variables_of_processes_may_be_written_as_numbers() -> None:
    assert config("python", "args: [-O, 1], env: {A: 2, B: true}") == PythonConfig(
        args=("-O", "1"), env={"A": "2", "B": "true"}
    )


def test_an_agent_that_fails_fails_and_in_the_program_its_error_is_its_answer() -> None:
    text = node_text("agent", "provider: openai, name: m")
    assert whole(text).graph.nodes[0].on_error == "fail"
    assert whole(text, "devall").graph.nodes[0].on_error == "continue"
    assert whole(text.replace("id: a,", "id: a, on_error: continue,")).graph.nodes[0].on_error == "continue"
    assert whole(node_text("human", ""), "devall").graph.nodes[0].on_error == "fail"


def test_an_agent_of_callboard_may_be_named() -> None:
    agent = config("agent", "provider: callboard, name: ' coder '")
    assert isinstance(agent, AgentConfig)
    assert (agent.provider, agent.name) == ("callboard", "coder")


def test_an_empty_text_counts_as_not_given() -> None:
    assert config("loop_counter", 'max_iterations: 1, message: ""').message is None
    assert config("agent", 'provider: openai, name: m, base_url: "", input_mode: " Prompt "').input_mode == "prompt"


def test_seeds_are_messages_texts_and_whatever_else_as_text() -> None:
    text = node_text("passthrough", "").replace(
        "id: a,", "id: a, input: [hello, {role: system, content: [{type: text, text: x}]}], output: 5,"
    )
    node = whole(text).graph.nodes[0]
    assert node.input == (Seed(role="user", content="hello"), Seed(role="system", content="x"))
    assert node.output == (Seed(role="assistant", content="5"),)


# --- where to begin and end -------------------------------------------------------------------------------


def test_the_only_node_that_nothing_leads_to_is_the_start() -> None:
    text = edge_text("").replace("  start: a\n", "")
    assert whole(text).graph.start == ("a",)
    assert codes(text, "devall") == ["no_start"]
    loop = "graph:\n  end: []\n  nodes: [{id: a, type: human, config: {}}]\n  edges: [{from: a, to: a}]\n"
    assert whole(loop).graph.start == ("a",)


def test_several_such_nodes_are_named() -> None:
    text = edge_text("").replace("  start: a\n", "").replace("{from: a, to: b, }", "")
    text = text.replace("  edges:\n  - \n", "  end: [b]\n")
    workflow, problems = read_workflow(text, "wf.yaml")
    assert workflow is None
    assert [problem.code for problem in problems] == ["no_start"]
    assert "`start: [a, b]`" in str(problems[0])


def test_starts_keep_their_order_and_lose_their_doubles() -> None:
    text = edge_text("").replace("start: a", "start: [b, a, b]")
    assert whole(text).graph.start == ("b", "a")


def test_a_vote_needs_no_start_and_in_the_program_any() -> None:
    text = "graph:\n  is_majority_voting: true\n  nodes: [{id: a, type: literal, config: {content: x}}]\n"
    assert whole(text).graph.start == ()
    assert codes(text, "devall") == ["no_start"]


def test_a_store_may_go_without_a_config_of_its_own() -> None:
    text = node_text("human", "memories: [{name: m, read: true}]", "  memory: [{name: m, type: simple}]\n")
    assert whole(text).graph.memory[0].name == "m"
    assert "missing_key" in codes(text, "devall")


def test_plugins_bring_node_types() -> None:
    text = node_text("robot", "arm: {length: 2}")
    assert codes(text) == ["unknown_type"]
    known = KNOWN.__class__(node_types=frozenset({"robot"}))
    workflow, problems = read_workflow(text, "wf.yaml", known=known)
    assert problems == []
    assert workflow is not None
    assert workflow.graph.nodes[0].config.values == {"arm": {"length": 2}}
