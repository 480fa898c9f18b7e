"""Who runs when: layers, joins, cycles, exits. The ids in names are those of the notes on DevAll."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pytest
from support.messages import has_message
from support.workflow_driver import Delivered, Dropped, Notice, WorkflowDriver, shuffled, structure, task, workflow

from callboard.actors.engine.workflow.machine.machine import MachineResult, StateMachine, WorkflowWarning, majority
from callboard.actors.engine.workflow.machine.perform import Firing, performed
from callboard.actors.engine.workflow.machine.structure import Structure
from callboard.actors.engine.workflow.rules import STANDARD
from callboard.protocol.errors import GraphMistake
from callboard.protocol.workflow.model import Graph, LiteralConfig, Node, SubgraphConfig
from callboard.protocol.workflow_messages import FireNode


def graph(nodes: str, edges: str, more: str = "", start: str = "A") -> str:
    """A workflow of literals that say their lower-case name; other nodes in YAML. Edges: `A>B, B>C`."""
    lines = ["graph:", f"  start: [{start}]", *(f"  {line}" for line in textwrap.dedent(more).splitlines()), "  nodes:"]
    for node in nodes.split(";"):
        id, _, rest = node.strip().partition(" ")
        lines.append(f"  - {{id: {id}, {rest or f'type: literal, config: {{content: {id.lower()}}}'}}}")
    lines.append("  edges:")
    for edge in edges.split(";"):
        pair, _, rest = edge.strip().partition(" ")
        source, _, target = pair.partition(">")
        lines.append(f"  - {{from: {source}, to: {target}{', ' + rest if rest else ''}}}")
    return "\n".join(lines)


PASS = "type: passthrough, config: {only_last_message: false}"
LAST = "type: passthrough, config: {}"


def counter(limit: int, message: str = "") -> str:
    return f"type: loop_counter, config: {{max_iterations: {limit}{', message: ' + message if message else ''}}}"


def agent(*says: str) -> str:
    return f"type: agent, config: {{provider: stub, name: m, params: {{seq: [{', '.join(says)}]}}}}"


def only_if(word: str) -> str:
    return f"condition: {{type: keyword, config: {{any: [{word}]}}}}"


def played(yaml: str, compat: str | None = None, **workflow_driver: object) -> MachineResult:
    return WorkflowDriver(**workflow_driver).run(structure(workflow(yaml, compat)))


def order(yaml: str, compat: str | None = None) -> str:
    result = played(yaml, compat)
    assert result.error is None
    return " ".join(result.order)


# --- layers -----------------------------------------------------------------------------------------------


def test_b06_a_join_runs_once_and_sees_both_branches() -> None:
    yaml = graph(f"A; B; C; J {PASS}", "A>B; A>C; B>J; C>J")
    assert order(yaml) == "A B C J"
    assert [message.text for message in played(yaml).final_messages] == ["b", "c"]


@pytest.mark.parametrize("seed", range(8))
def test_p01_messages_join_in_the_order_of_the_layer_however_slow_their_nodes_are(seed: int) -> None:
    yaml = graph(f"A; B; C; D; J {PASS}", "A>B; A>C; A>D; B>J; C>J; D>J")
    result = WorkflowDriver(pick=shuffled(seed)).run(structure(workflow(yaml)))
    assert [message.text for message in result.final_messages] == ["b", "c", "d"]


def test_p02_a_layer_waits_for_its_slowest_node() -> None:
    """F2 could begin as soon as F1 is done; S, which is of F1's layer, still runs."""
    found = structure(workflow(graph(f"A; F1; S; F2; J {PASS}", "A>F1; A>S; F1>F2; F2>J; S>J")))
    machine = StateMachine(found)
    (start,) = machine.begin(task())
    quick, slow = machine.done(performed(Firing(start, found)))
    assert (quick.node, slow.node) == ("F1", "S")
    assert machine.done(performed(Firing(quick, found))) == []
    assert [each.node for each in machine.done(performed(Firing(slow, found)))] == ["F2"]


def test_an_edge_that_never_triggers_is_waited_for_all_the_same() -> None:
    assert order(graph(f"A; B; J {PASS}", "A>B; A>J; B>J trigger: false")) == "A B J"


# --- cycles -----------------------------------------------------------------------------------------------


def test_c1_the_loop_counter_demo() -> None:
    yaml = graph(
        f"W; C; G {counter(3, 'three passes')}; F",
        "W>C; C>W; C>G; G>W; G>F",
        "end: [F]",
        start="W",
    )
    result = played(yaml)
    assert " ".join(result.order) == "W C G W C G W C G F"
    assert result.final == "f"
    assert [message.text for message in result.leftover["W"]] == ["c", "three passes"]


def test_l15_a_loop_in_a_loop_goes_round_for_every_round_of_the_outer_one() -> None:
    yaml = graph(
        f"O; I; J; IG {counter(2)}; T; OG {counter(2)}; F",
        "O>I; I>J; J>I; J>IG; IG>I; IG>T; T>O; T>OG; OG>O; OG>F",
        "end: [F]",
        start="O",
    )
    expected = "O I J IG I J IG T OG O I J IG I J IG T OG F"
    assert order(yaml) == expected
    assert order(yaml, "devall") == expected


def test_p04_a_side_branch_that_triggers_ends_the_loop_and_one_that_does_not_goes_along() -> None:
    edges = "A>B; B>A; A>LOG{}; B>G; G>A; G>F"
    nodes = f"A; B; G {counter(2)}; LOG {PASS}; F"
    assert order(graph(nodes, edges.format(""), "end: [F]")) == "A LOG"
    assert order(graph(nodes, edges.format(" trigger: false"), "end: [F]")) == "A B G A B G F"


def test_l11_a_cycle_is_entered_where_the_graph_says_it_starts() -> None:
    result = played(graph("S; A; B", "S>B; A>B; B>A", "end: [B]", start="S, A"))
    assert isinstance(result.error, GraphMistake)
    assert has_message(str(result.error), "engine.workflow.machine.machine.StateMachine._entry.2", id="A", id_2="B")


def test_l10_a_cycle_that_is_entered_twice_at_once_says_what_to_do() -> None:
    result = played(graph("S; A; B", "S>A; S>B; A>B; B>A", "end: [B]", start="S"))
    assert has_message(
        str(result.error), "engine.workflow.machine.machine.StateMachine._entry", found=2, found_2="'A', 'B'"
    )
    assert has_message(str(result.error), "engine.workflow.machine.machine.StateMachine._entry")
    assert result.order == ["S"]
    assert [message.text for message in result.outputs["S"]] == ["s"]


def test_l05_a_counter_beyond_the_cap_is_an_error_and_with_compat_devall_a_warning() -> None:
    yaml = graph(f"A; B; G {counter(150)}; F", "A>B; B>A; B>G; G>A; G>F", "end: [F]")
    result = played(yaml)
    assert has_message(str(result.error), "engine.workflow.machine.machine.StateMachine._capped", cap=100)
    assert result.order.count("A") == 100
    told: list[Notice] = []
    result = played(yaml, "devall", tell=told.append)
    assert result.error is None
    assert result.final == ""
    assert [each.code for each in told if isinstance(each, WorkflowWarning)] == ["max_iterations"]


def test_max_iterations_raises_the_cap() -> None:
    yaml = graph(f"A; B; G {counter(150)}; F", "A>B; B>A; B>G; G>A; G>F", "end: [F]\nmax_iterations: 150")
    assert played(yaml).final == "f"


def test_a_loop_that_ends_in_its_last_round_has_not_hit_the_cap() -> None:
    yaml = graph(f"A; B; G {counter(3)}; F", "A>B; B>A; B>G; G>A; G>F", "end: [F]\nmax_iterations: 3")
    assert played(yaml).error is None


def test_p03_whoever_is_slow_in_the_layer_of_an_exit_finishes() -> None:
    """L09 is the same with nodes that are done at once: there C is kept back."""
    yaml = graph(f"A; B {agent('b')}; C {agent('c')}; X", "A>B; A>C; B>A; C>A; B>X", "end: [X]")
    assert order(yaml) == "A B C X"


def test_an_instant_exit_does_not_keep_back_who_stands_before_it_in_the_layer() -> None:
    yaml = graph(f"A; S {agent('s')}; B; C {agent('c')}; X", "A>S; A>B; A>C; S>A; B>A; C>A; B>X", "end: [X]")
    result = played(yaml)
    assert sorted(result.order) == ["A", "B", "S", "X"]


def test_an_inner_loop_may_leave_both_loops_at_once() -> None:
    yaml = graph(
        f"O; I; J {agent('go', 'out')}; X",
        f"O>I; I>J; J>I {only_if('go')}; J>X {only_if('out')}; J>O condition: always_false",
        "end: [X]",
        start="O",
    )
    assert order(yaml) == "O I J I J X"


def test_a_node_that_leads_to_itself_inside_of_a_loop_goes_round_and_with_compat_devall_never_runs() -> None:
    yaml = graph(
        f"A; S {agent('again', 'again', 'ok')}; B; F",
        f"A>S; S>S {only_if('again')}; S>B {only_if('ok')}; B>A condition: always_false; B>F",
        "end: [F]",
    )
    assert order(yaml) == "A S S S B F"
    assert order(yaml, "devall") == "A"


def test_with_compat_devall_a_node_that_waits_for_itself_runs_in_the_next_round() -> None:
    edges = "A>S; S>S condition: always_false; S>A condition: always_false; A>T; T>A; T>G; G>A; G>F"
    yaml = graph(f"A; S; T; G {counter(2)}; F", edges, "end: [F]")
    assert order(yaml, "devall") == "A T G A S T G F"


def test_inside_of_a_loop_nobody_waits_for_an_edge_that_never_triggers() -> None:
    edges = "A>B; A>C; B>C trigger: false; B>A condition: always_false; C>A condition: always_false"
    workflow_driver = WorkflowDriver()
    workflow_driver.run(structure(workflow(graph(f"A; B; C {PASS}", edges, "end: [C]"))))
    assert [message.text for message in dict(workflow_driver.inputs)["C"]] == ["a"]


def test_two_loops_of_a_layer_do_not_wait_for_each_other() -> None:
    nodes = f"S; A; B {agent('b')}; GA {counter(3)}; P; Q {agent('q')}; GP {counter(3)}; J {PASS}"
    edges = "S>A; A>B; B>A; B>GA; GA>A; GA>J; S>P; P>Q; Q>P; Q>GP; GP>P; GP>J"
    found = structure(workflow(graph(nodes, edges, start="S")))

    def first_loop_first(waiting: Sequence[FireNode]) -> int:
        """The second loop has not done anything before the first is over."""
        return next((i for i, each in enumerate(waiting) if each.node in {"S", "A", "B", "GA"}), 0)

    one_sided = WorkflowDriver(pick=first_loop_first).run(found)
    fair = WorkflowDriver().run(found)
    assert " ".join(one_sided.order).startswith("S A P B GA A B GA A B GA Q")
    assert sorted(one_sided.order) == sorted(fair.order)
    assert one_sided.final_messages == fair.final_messages
    assert one_sided.leftover == fair.leftover


# --- failures, votes, subgraphs ---------------------------------------------------------------------------


def failing(id: str, on_error: str = "") -> str:
    config = "{provider: stub, name: m, params: {raise: broken, raise_times: 1}}"
    return f"{id} type: agent, config: {config}{', on_error: ' + on_error if on_error else ''}"


def test_a01_a_failed_agent_fails_the_run_and_with_compat_devall_its_error_is_what_it_says() -> None:
    yaml = graph(f"A; {failing('B')}; C {LAST}; Z {LAST}", "A>B; A>C; B>Z; C>Z")
    result = played(yaml)
    assert str(result.error) == "broken"
    assert result.error is not None
    assert result.error.node == "B"
    assert result.order == ["A", "B", "C"]
    text = "Error calling model m: broken\n\nOriginal input: === INPUT FROM A (user) ===\n\na..."
    result = played(yaml, "devall")
    assert result.outputs["B"][0].text == text
    assert result.order == ["A", "B", "C", "Z"]


def test_on_error_continue_goes_on_with_the_error_as_text() -> None:
    result = played(graph(f"A; {failing('B', 'continue')}; Z {LAST}", "A>B; B>Z"))
    assert result.error is None
    assert result.final.startswith("Error calling model m: broken")


def test_several_failures_of_a_layer_are_all_named() -> None:
    result = played(graph(f"A; {failing('B')}; {failing('C')}; Z {LAST}", "A>B; A>C; B>Z; C>Z"))
    assert str(result.error) == "at node 'B': broken; at node 'C': broken"


@pytest.mark.parametrize(
    ("votes", "winner"),
    [(["x", "y", "x"], "x"), (["x", "y"], "x"), (["", "", "y"], "y"), (["", " ", " "], " "), ([], "")],
)
def test_m02_a_majority_wins_and_blank_votes_count_only_among_themselves(votes: list[str], winner: str) -> None:
    assert majority(votes).content == winner


def test_voters_all_answer_the_task_whatever_the_edges_say() -> None:
    yaml = graph(f"X; Y {agent('v')}; Z {agent('v')}", "X>Y condition: always_false", "is_majority_voting: true", "X")
    result = played(yaml)
    assert result.order == ["X", "Y", "Z"]
    assert [(message.role, message.text) for message in result.final_messages] == [("assistant", "v")]


def test_a_node_that_was_told_twice_hears_both_edges_of_a_pair() -> None:
    yaml = graph(f"A; B {PASS}", f"A>B {only_if('a')}; A>B {only_if('x')}; A>B")
    assert [message.text for message in played(yaml).final_messages] == ["a", "a"]


def test_messages_and_drops_are_told_as_they_come() -> None:
    told: list[Notice] = []
    played(graph("A; B", "A>B"), tell=told.append)
    assert [type(each) for each in told] == [Delivered, Dropped, Delivered, Dropped]
    assert [each.target for each in told if isinstance(each, Delivered | Dropped)] == ["A", "A", "B", "B"]


def test_nodes_that_run_the_same_graph_share_its_structure() -> None:
    """Two files that each name the next one twice would otherwise come to as many structures as there are ways."""
    each = Graph(nodes=(Node(id="x", type="literal", config=LiteralConfig(content="x")),), start=("x",))
    for _ in range(40):
        nodes = tuple(Node(id=id, type="subgraph", config=SubgraphConfig(graph=each)) for id in "ab")
        each = Graph(nodes=nodes, start=("a",))
    found = Structure(each, STANDARD)
    while found.places[0].id == "a":
        assert found.within(found.places[0]) is found.within(found.places[1])
        found = found.within(found.places[0])
    assert WorkflowDriver().run(found).final == "x"
