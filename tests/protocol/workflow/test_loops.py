"""Cycles: what is warned of, and above all what is not."""

from __future__ import annotations

from callboard.protocol.workflow import read_workflow


def codes(nodes: str, *edges: str, start: str = "a") -> list[str]:
    """The codes for nodes such as `a b c:counter` and edges such as `a>b`, `a>b?` (conditional), `a>b-` (silent)."""
    kinds = {"counter": "loop_counter, config: {max_iterations: 3}", "timer": "loop_timer, config: {}"}
    text = f"graph:\n  start: [{start}]\n  end: []\n  nodes:\n"
    for node in nodes.split():
        name, _, kind = node.partition(":")
        text += f"  - {{id: {name}, type: {kinds.get(kind, 'passthrough, config: {}')}}}\n"
    text += "  edges:\n"
    for edge in edges:
        more = ", condition: some_function" if edge.endswith("?") else ", trigger: false" if edge.endswith("-") else ""
        source, _, target = edge.rstrip("?-").partition(">")
        text += f"  - {{from: {source}, to: {target}{more}}}\n"
    workflow, problems = read_workflow(text, "loop.yaml")
    assert workflow is not None or any(problem.severity == "error" for problem in problems)
    return [problem.code for problem in problems]


def test_a_loop_with_conditions_is_fine() -> None:
    assert codes("a b out", "a>b", "b>a?", "b>out?") == []


def test_a_loop_with_a_counter_beside_its_way_back_is_fine() -> None:
    assert codes("a b gate:counter out", "a>b", "b>a", "b>gate", "gate>a", "gate>out") == []


def test_a_report_that_does_not_trigger_is_fine_and_one_that_does_is_not() -> None:
    assert codes("a b out log", "a>b", "b>a?", "b>out?", "a>log-", "out>log") == []
    assert codes("a b out log", "a>b", "b>a?", "b>out?", "a>log", "out>log") == ["exit_at_once"]


def test_edges_back_that_only_carry_make_no_loop_to_end() -> None:
    assert codes("a b out", "a>b", "b>a-", "b>out") == []


def test_a_loop_without_a_way_out_ends_only_at_its_cap() -> None:
    assert codes("a b", "a>b", "b>a") == ["endless_cycle"]
    assert codes("a b", "a>b", "b>a?") == []
    assert codes("a", "a>a") == ["endless_cycle"]


def test_a_gate_has_to_be_on_the_loop_and_not_on_its_only_way() -> None:
    assert codes("a b gate:counter out", "a>b", "b>a?", "b>gate?", "gate>out") == ["gate_outside_cycle"]
    assert codes("a gate:timer out", "a>gate", "gate>a", "gate>out") == ["gate_on_only_way"]
    assert codes("a gate:counter out", "a>gate", "gate>out") == ["idle_gate"]


def test_a_second_way_in_is_told_and_one_that_only_carries_is_fine() -> None:
    assert codes("s a b out", "s>a", "a>b", "b>a?", "b>out?", "s>b", start="s") == ["two_entries"]
    assert codes("s a b out", "s>a", "a>b", "b>a?", "b>out?", "s>b-", start="s") == []


def test_a_cycle_inside_of_a_round_has_one_way_in_too() -> None:
    round_ = ("a>b", "b>c", "c>b?", "c>a?", "c>out?")
    assert codes("a b c out", *round_) == []
    assert codes("a b c out", *round_, "a>c") == ["two_entries"]


def test_two_starts_on_one_cycle_are_an_error() -> None:
    assert codes("a b out", "a>b", "b>a?", "b>out?", start="a, b") == ["two_starts"]


def test_what_nothing_leads_to_is_told_once_for_all_behind_it() -> None:
    assert codes("a b x y z", "a>b", "x>y", "y>z") == ["never_runs"]
    assert codes("a b x y", "a>b", "x>y", "y>x?") == ["never_runs"]
    assert codes("a b c", "a>b", "b>c-") == ["never_runs"]
