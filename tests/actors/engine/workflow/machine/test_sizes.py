"""Graphs that DevAll's own engine can't run, and what they cost: linear, and nothing recurses."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from support.workflow_driver import WorkflowDriver

from callboard.actors.engine.workflow.machine.machine import MachineResult
from callboard.actors.engine.workflow.machine.structure import Structure
from callboard.actors.engine.workflow.rules import STANDARD
from callboard.protocol.workflow.model import Edge, Graph, LiteralConfig, LoopCounterConfig, Node, PassthroughConfig


def literal(id: str) -> Node:
    return Node(id=id, type="literal", config=LiteralConfig(content=id))


def passing(id: str) -> Node:
    return Node(id=id, type="passthrough", config=PassthroughConfig(only_last_message=False))


def chain(length: int) -> Graph:
    nodes = tuple(literal(f"n{i}") for i in range(length))
    edges = tuple(Edge(source=f"n{i}", target=f"n{i + 1}") for i in range(length - 1))
    return Graph(nodes=nodes, edges=edges, start=("n0",))


def ring(length: int) -> Graph:
    """A loop of so many nodes that goes round twice, and a way out."""
    gate = Node(id="gate", type="loop_counter", config=LoopCounterConfig(max_iterations=2, message="out"))
    nodes = (*(literal(f"n{i}") for i in range(length)), gate, passing("end"))
    edges = (
        *(Edge(source=f"n{i}", target=f"n{i + 1}") for i in range(length - 1)),
        Edge(source=f"n{length - 1}", target="n0"),
        Edge(source=f"n{length - 1}", target="gate"),
        Edge(source="gate", target="n0"),
        Edge(source="gate", target="end"),
    )
    return Graph(nodes=nodes, edges=edges, start=("n0",), end=("end",))


def fan(width: int) -> Graph:
    nodes = (literal("first"), *(literal(f"n{i}") for i in range(width)), passing("last"))
    out = tuple(Edge(source="first", target=f"n{i}") for i in range(width))
    back = tuple(Edge(source=f"n{i}", target="last") for i in range(width))
    return Graph(nodes=nodes, edges=out + back, start=("first",))


def run(graph: Graph) -> MachineResult:
    return WorkflowDriver().run(Structure(graph, STANDARD))


def test_p05_a_chain_of_10_000_nodes_runs_to_its_end() -> None:
    result = run(chain(10_000))
    assert result.final == "n9999"
    assert len(result.order) == 10_000


def test_p06_a_fan_of_1_000_joins_in_the_order_of_the_file() -> None:
    result = run(fan(1_000))
    assert [message.text for message in result.final_messages] == [f"n{i}" for i in range(1_000)]


def test_a_loop_of_5_000_nodes_goes_round() -> None:
    result = run(ring(5_000))
    assert result.final == "out"
    assert len(result.order) == 2 * 5_001 + 1


def seconds(graph: Graph) -> float:
    found = Structure(graph, STANDARD)
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        WorkflowDriver().run(found)
        best = min(best, time.process_time() - began)
    return best


@pytest.mark.parametrize("shape", [chain, fan, ring])
@pytest.mark.sample(1)
def test_ten_times_the_nodes_take_ten_times_as_long(shape: Callable[[int], Graph]) -> None:
    """Were it quadratic, it would be a hundred times; thirty leaves room for a busy machine."""
    small, large = seconds(shape(300)), seconds(shape(3_000))
    print(f"{shape.__name__}: 300 nodes {small * 1e3:.1f} ms, 3,000 nodes {large * 1e3:.1f} ms")
    assert large < 30 * small
