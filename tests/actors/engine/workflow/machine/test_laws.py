"""Random graphs: what has to hold for every one of them, whoever is quick and whoever is slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.workflow_driver import Delivered, Dropped, Notice, WorkflowDriver, first, last, shuffled, task
from support.workflow_graphs import IDS, graphs

from callboard.actors.engine.workflow.machine.machine import MachineResult, StateMachine
from callboard.actors.engine.workflow.machine.perform import over
from callboard.actors.engine.workflow.machine.structure import Structure
from callboard.actors.engine.workflow.messages import TASK, Message
from callboard.actors.engine.workflow.rules import DEVALL, STANDARD, WorkflowRules
from callboard.protocol.workflow.cycles import cycles_of
from callboard.protocol.workflow.model import Edge, Graph, LiteralConfig, Node
from callboard.protocol.workflow_messages import Fired, FireNode

MOST_FIRINGS, MOST_MESSAGES = 150, 600


LENGTHS = pytest.mark.parametrize("examples", [15, pytest.param(1_000, marks=pytest.mark.soak)])


class TooMuch(Exception):
    """A graph whose messages multiply without end shows nothing that a small one does not."""


class Bounded(WorkflowDriver):
    """A stage that gives up on such graphs, and remembers what firings came to."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.fired: list[Fired] = []

    def _seen(self, firings: list[FireNode]) -> list[FireNode]:
        for firing in firings:
            if len(firing.inputs) > MOST_MESSAGES or sum(len(each.text) for each in firing.inputs) > 100_000:
                raise TooMuch
        if len(self.inputs) > MOST_FIRINGS:
            raise TooMuch
        return super()._seen(firings)

    def play(self, machine: StateMachine, given: Sequence[Message]) -> MachineResult:
        done = machine.done

        def remembered(fired: Fired) -> list[FireNode]:
            self.fired.append(fired)
            return done(fired)

        machine.done = remembered
        return super().play(machine, given)


RULES = st.sampled_from([STANDARD, DEVALL])


def played(graph: Graph, rules: WorkflowRules, workflow_driver: Bounded) -> MachineResult:
    try:
        return workflow_driver.run(Structure(graph, rules))
    except TooMuch:
        assume(False)
        raise AssertionError from None


def seen_by(workflow_driver: WorkflowDriver) -> dict[str, list[tuple[Message, ...]]]:
    found: dict[str, list[tuple[Message, ...]]] = {}
    for id, inputs in workflow_driver.inputs:
        found.setdefault(id, []).append(inputs)
    return found


@LENGTHS
def test_a_run_comes_to_the_same_whoever_is_quick(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(graphs(), RULES, st.integers(0, 1000))
    def law(graph: Graph, rules: WorkflowRules, seed: int) -> None:
        one = Bounded(pick=first)
        expected = played(graph, rules, one)
        for pick in (last, shuffled(seed)):
            other = Bounded(pick=pick)
            found = played(graph, rules, other)
            assert seen_by(other) == seen_by(one)
            assert Counter(found.order) == Counter(expected.order)
            assert found.final_messages == expected.final_messages
            assert (found.leftover, found.outputs) == (expected.leftover, expected.outputs)
            assert str(found.error) == str(expected.error)

    law()


@LENGTHS
def test_messages_are_neither_lost_nor_doubled(examples: int) -> None:
    """Queues are kept a second time, by what is told: everything that is seen or left over must come out of them."""

    @settings(max_examples=examples, deadline=None)
    @given(graphs(subgraphs=False), RULES, st.integers(0, 1000))
    def law(graph: Graph, rules: WorkflowRules, seed: int) -> None:
        queues: dict[str, list[Message]] = {node.id: [] for node in graph.nodes}
        delivered: Counter[tuple[str, str]] = Counter()
        crossed: Counter[tuple[str, str]] = Counter()
        alive: list[Notice] = []

        def keep_book(notice: Notice) -> None:
            alive.append(notice)  # so that no other message gets its id
            if isinstance(notice, Delivered):
                queues[notice.target].append(notice.message)
                if notice.message.source not in (None, TASK):
                    delivered[notice.target, repr(notice.message)] += 1
            elif isinstance(notice, Dropped):
                for message in notice.messages:
                    index = next(i for i, each in enumerate(queues[notice.target]) if each is message)
                    del queues[notice.target][index]

        class Watched(Bounded):
            def _seen(self, firings: list[FireNode]) -> list[FireNode]:
                for firing in firings:
                    assert [id(each) for each in firing.inputs] == [id(each) for each in queues[firing.node]]
                return super()._seen(firings)

        workflow_driver = Watched(pick=shuffled(seed), tell=keep_book)
        result = played(graph, rules, workflow_driver)
        assert result.leftover == {id: tuple(queue) for id, queue in queues.items() if queue}
        if result.error is None:
            ways = Structure(graph, rules).ways
            for fired in workflow_driver.fired:
                for each in fired.crossings:
                    if isinstance(each.arrives, int):
                        way = ways[each.way]
                        crossed[way.target.id, repr(over(way, fired.outputs[each.arrives]))] += 1
                    elif each.arrives is not None:
                        crossed[ways[each.way].target.id, repr(each.arrives)] += 1
            own = {node.id for node in graph.nodes if node.context_window}  # who remembers what it said itself
            for (target, message), times in delivered.items():
                assert times >= crossed[target, message] if target in own else times == crossed[target, message]
            assert crossed.keys() <= delivered.keys()

    law()


@LENGTHS
def test_without_cycles_whoever_is_triggered_runs_once_and_nobody_else(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(graphs(acyclic=True, subgraphs=False, failures=False), RULES)
    def law(graph: Graph, rules: WorkflowRules) -> None:
        workflow_driver = Bounded()
        result = played(graph, rules, workflow_driver)
        assert result.error is None
        triggered = {
            graph.edges[each.way].target for fired in workflow_driver.fired for each in fired.crossings if each.fires
        }
        assert len(result.order) == len(set(result.order))
        assert set(result.order) == {*graph.start, *triggered}

    law()


@LENGTHS
def test_a_cycle_ends_within_its_cap_and_cycles_inside_of_it_within_theirs(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(graphs(subgraphs=False, failures=False), RULES)
    def law(graph: Graph, rules: WorkflowRules) -> None:
        result = played(graph, rules, Bounded())
        nested = max((len(cycle) for cycle in cycles_of(graph)), default=0)
        assert max(Counter(result.order).values(), default=0) <= max(1, graph.max_iterations**nested)

    law()


@given(st.integers(1, 5), st.integers(1, 4), RULES)
def test_a_cycle_that_nothing_ends_goes_round_as_often_as_its_cap_says(
    length: int, cap: int, rules: WorkflowRules
) -> None:
    ids = IDS[:length]
    nodes = tuple(Node(id=id, type="any", config=LiteralConfig(content=id)) for id in ids)
    edges = tuple(Edge(source=id, target=ids[(i + 1) % length]) for i, id in enumerate(ids))
    graph = Graph(nodes=nodes, edges=edges, start=(ids[0],), end=(ids[-1],), max_iterations=cap)
    result = WorkflowDriver().run(Structure(graph, rules), task())
    assert result.order == list(ids) * cap
    assert (result.error is not None) is rules.cap_is_an_error
