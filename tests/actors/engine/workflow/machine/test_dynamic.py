"""Nodes that run once per unit: how inputs are split, what map and tree make of them."""

from __future__ import annotations

import pytest
from support.messages import has_message
from support.workflow_driver import WorkflowDriver, structure, workflow

from callboard.actors.engine.workflow.machine import perform
from callboard.actors.engine.workflow.machine.machine import MachineResult


def graph(
    content: str, dynamic: str, *, target: str = "type: agent, config: {provider: stub, name: m}", more: str = ""
) -> str:
    """A literal, its lines as messages of one node, and a target that runs per message."""
    lines = content.split()
    nodes = "\n".join(f"    - {{id: L{i}, type: literal, config: {{content: {line}}}}}" for i, line in enumerate(lines))
    edges = "\n".join(f"    - {{from: L{i}, to: P}}" for i in range(len(lines)))
    return f"""
graph:
  start: [{", ".join(f"L{i}" for i in range(len(lines)))}]
  end: [M]
  nodes:
{nodes}
    - {{id: P, type: passthrough, config: {{only_last_message: false}}}}
    - {{id: M, {target}}}
  edges:
{edges}
    - {{from: P, to: M, dynamic: {dynamic}}}
{more}"""


def played(yaml: str, compat: str | None = None, workflow_driver: WorkflowDriver | None = None) -> MachineResult:
    result = (workflow_driver or WorkflowDriver()).run(structure(workflow(yaml, compat)))
    assert result.error is None
    return result


def texts(result: MachineResult) -> list[str]:
    return [message.text for message in result.final_messages]


def test_a_map_hands_out_its_units_together_and_says_how_many_at_once() -> None:
    workflow_driver = WorkflowDriver()
    assert texts(played(graph("a b c", "{type: map, config: {max_parallel: 2}}"), workflow_driver=workflow_driver)) == [
        "M<user:a>",
        "M<user:b>",
        "M<user:c>",
    ]
    assert ("M", 3, 2) in workflow_driver.batches


def test_d02b_a_last_group_of_one_is_run_alone() -> None:
    assert texts(played(graph("a b c d", "{type: tree, config: {group_size: 3}}"))) == [
        "M<user:M<user:a ; user:b ; user:c> ; user:M<user:d>>"
    ]


@pytest.mark.parametrize(("compat", "said"), [("standard", "M<user:a>"), ("devall", "a")])
def test_d03_a_tree_of_one_unit_runs_its_target_once_which_devall_skips(compat: str, said: str) -> None:
    assert texts(played(graph("a", "{type: tree}"), compat)) == [said]


def test_a_tree_says_what_users_say_and_hears_static_inputs_only_at_first() -> None:
    more = "    - {from: L0, to: M}"
    result = played(graph("a b c", "{type: tree, config: {group_size: 2}}", more=more))
    assert texts(result) == ["M<user:M<user:a ; user:a ; user:b> ; user:M<user:a ; user:c>>"]
    assert result.final_messages[0].role == "user"


def test_a_tree_whose_target_never_says_less_than_it_hears_ends() -> None:
    target = "type: passthrough, config: {only_last_message: false}"
    assert texts(played(graph("a b c", "{type: tree}", target=target))) == ["a", "b", "c"]


def test_q13_a_counter_counts_every_unit() -> None:
    target = "type: loop_counter, config: {max_iterations: 2, message: two}"
    assert texts(played(graph("a b", "{type: map}", target=target))) == ["two"]


ITEMS = """
graph:
  start: [A]
  nodes:
    - {id: A, type: literal, config: {content: '%s'}}
    - {id: N, type: agent, config: {provider: stub, name: m, role: "%s"}}
  edges:
    - {from: A, to: N, dynamic: {type: map, config: {split_type: json_array, item_name: patient}}}
"""


@pytest.mark.parametrize(
    ("content", "role", "said"),
    [
        ('["Ann", "Ben"]', "See {{patient}}.", ["system:See Ann. ; user:Ann", "system:See Ben. ; user:Ben"]),
        ('[{"n": 7}]', "{{patient.n}} {{item.n}} {{other}}", ['system:7 7 {{other}} ; user:{"n": 7}']),
        ('["{{patient}}"]', "See {{item}}.", ["system:See {{patient}}. ; user:{{patient}}"]),
    ],
)  # fmt: skip
def test_the_role_of_a_target_knows_the_item(content: str, role: str, said: list[str]) -> None:
    assert texts(played(ITEMS % (content, role))) == [f"N<{each}>" for each in said]


def test_an_empty_array_is_nothing_to_do() -> None:
    result = played(ITEMS % ("[]", "x"))
    assert texts(result) == []
    assert result.order == ["A", "N"]


def test_units_of_a_subgraph_each_have_a_run_of_their_own() -> None:
    inner = """{type: config, config: {start: [G], nodes: [
        {id: G, type: loop_counter, config: {max_iterations: 2, message: two}}], edges: []}}"""
    result = played(graph("a b", "{type: map}", target=f"type: subgraph, config: {inner}"))
    assert texts(result) == ["", ""]
    assert result.order.count("G") == 2


FAILING = "type: agent, on_error: {}, config: {{provider: stub, name: m, params: {{raise: broken, raise_times: 1}}}}"


def test_a_unit_that_fails_fails_its_node_and_is_named() -> None:
    workflow_driver = WorkflowDriver()
    result = workflow_driver.run(structure(workflow(graph("a b c", "{type: map}", target=FAILING.format("fail")))))
    assert str(result.error) == "unit 0: broken"
    assert result.error is not None
    assert result.error.node == "M"


def test_a_unit_that_fails_and_may_go_on_says_so_in_its_place() -> None:
    said = texts(played(graph("a b", "{type: map}", target=FAILING.format("continue"))))
    assert said[0].startswith("Error calling model m: broken\n\nOriginal input: === INPUT FROM P (user) ===\n\na")
    assert said[1] == "M<user:b>"


def test_more_units_than_a_node_may_have_are_the_authors_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perform, "MOST_UNITS", 2)
    workflow_driver = WorkflowDriver()
    result = workflow_driver.run(structure(workflow(graph("a b c", "{type: map}"))))
    assert has_message(str(result.error), "engine.workflow.machine.perform.multiplied", units=3, MOST_UNITS=2)
    assert not [batch for batch in workflow_driver.batches if batch[0] == "M"]


def test_of_many_units_that_fail_the_first_are_named_and_the_others_counted() -> None:
    target = "type: agent, config: {provider: stub, name: m, params: {raise: oh, raise_times: 99}}"
    result = WorkflowDriver().run(
        structure(workflow(graph(" ".join(f"u{i}" for i in range(50)), "{type: map}", target=target)))
    )
    assert "unit 19: oh; and 30 more" in str(result.error)
