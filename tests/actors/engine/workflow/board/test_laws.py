"""Random graphs: what has to hold for every one of them, whoever is quick and whoever is slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from workflow_stage import Stage, first, last, shuffled, task

from callboard.actors.engine.workflow.board.board import Board
from callboard.actors.engine.workflow.board.result import Delivered, Dropped, Notice, Result
from callboard.actors.engine.workflow.board.structure import Structure
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.rules import DEVALL, STANDARD, Rules
from callboard.protocol.workflow.cycles import cycles_of
from callboard.protocol.workflow.edges import (
    Always,
    ByLines,
    ByMessage,
    Dynamic,
    Edge,
    FunctionProcessor,
    KeywordCondition,
    Never,
    RegexExtract,
    Template,
)
from callboard.protocol.workflow.messages import Fired, FireNode
from callboard.protocol.workflow.model import (
    AgentConfig,
    Graph,
    LiteralConfig,
    LoopCounterConfig,
    Node,
    NodeConfig,
    PassthroughConfig,
    Seed,
    SubgraphConfig,
)

IDS = "abcdef"
MOST_FIRINGS, MOST_MESSAGES = 150, 600


LENGTHS = pytest.mark.parametrize("examples", [60, pytest.param(1_000, marks=pytest.mark.soak)])


class TooMuch(Exception):
    """A graph whose messages multiply without end shows nothing that a small one does not."""


class Bounded(Stage):
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

    def play(self, board: Board, given: Sequence[Message]) -> Result:
        done = board.done

        def remembered(fired: Fired) -> list[FireNode]:
            self.fired.append(fired)
            return done(fired)

        board.done = remembered
        return super().play(board, given)


def agent(says: list[str]) -> AgentConfig:
    return AgentConfig(provider="stub", name="m", params={"seq": says})


def failing(times: int) -> AgentConfig:
    return AgentConfig(provider="stub", name="m", params={"raise": "broken", "raise_times": times, "reply": "y"})


MOSTLY = st.sampled_from([True, True, True, False])
WORDS = st.sampled_from(["x", "y", "x y", "x\ny\nx"])


@st.composite
def configs(draw: st.DrawFn, id: str, *, subgraphs: bool, failures: bool) -> NodeConfig:
    inner = SubgraphConfig(
        graph=Graph(
            nodes=(
                Node(id=f"{id}1", type="passthrough", config=PassthroughConfig(only_last_message=False)),
                Node(id=f"{id}2", type="agent", context_window=-1, config=agent(["x", "y"])),
            ),
            edges=(
                Edge(source=f"{id}1", target=f"{id}2"),
                Edge(source=f"{id}2", target=f"{id}1", condition=KeywordCondition(any=("y",))),
            ),
            start=(f"{id}1",),
            end=(f"{id}2",),
            max_iterations=2,
        )
    )
    kinds: list[st.SearchStrategy[NodeConfig]] = [
        st.builds(LiteralConfig, content=WORDS, role=st.sampled_from(["user", "assistant", "system"])),
        st.builds(PassthroughConfig, only_last_message=st.booleans()),
        st.builds(agent, st.lists(WORDS, min_size=1, max_size=3)),
        st.builds(LoopCounterConfig, max_iterations=st.integers(1, 2), reset_on_emit=st.booleans()),
    ]
    if subgraphs:
        kinds.append(st.just(inner))
    if failures:
        kinds.append(st.builds(failing, st.integers(0, 1)))
    return draw(st.one_of(kinds))


CONDITIONS = st.sampled_from(
    [Always(), Always(), Always(), Never(), KeywordCondition(any=("x",)), KeywordCondition(none=("y",))]
)
PROCESSORS = st.sampled_from(
    [
        None,
        None,
        None,
        RegexExtract(pattern="x", on_no_match="drop"),
        Template(template="{{content}} {{a}}"),
        FunctionProcessor(name="uppercase_payload"),
    ]
)
DYNAMICS = st.none() | st.builds(
    Dynamic,
    type=st.sampled_from(["map", "tree"]),
    split=st.sampled_from([ByMessage(), ByLines()]),
    group_size=st.just(2),
)


@st.composite
def graphs(draw: st.DrawFn, *, acyclic: bool = False, subgraphs: bool = True, failures: bool = True) -> Graph:
    """Up to six nodes of all kinds that need nobody outside, with any edges between them."""
    ids = IDS[: draw(st.integers(3, len(IDS)))]
    nodes = [
        Node(
            id=id,
            type="any",
            context_window=draw(st.sampled_from([0, 0, 0, 1, 2, -1])),
            on_error=draw(st.sampled_from(["fail", "continue"])),
            input=draw(st.sampled_from([(), (Seed(role="user", content="x"),)])),
            config=draw(configs(id, subgraphs=subgraphs, failures=failures)),
        )
        for id in ids
    ]
    dynamics = {id: draw(DYNAMICS) for id in ids}
    # Something leads to every node, so that most of them run.
    edges = [Edge(source=ids[draw(st.integers(max(0, i - 2), i - 1))], target=ids[i]) for i in range(1, len(ids))]
    if draw(st.booleans()):  # and what they say meets somewhere
        edges += [Edge(source=id, target=ids[-1]) for id in ids[:-2]]
    if not acyclic and draw(st.booleans()):  # and often everything goes round
        edges.append(Edge(source=ids[-1], target="a", condition=draw(CONDITIONS)))
    for source, target in draw(st.lists(st.tuples(st.sampled_from(ids), st.sampled_from(ids)), max_size=len(ids))):
        if acyclic and source >= target:
            continue
        edges.append(
            Edge(
                source=source,
                target=target,
                trigger=draw(MOSTLY),
                carry_data=draw(MOSTLY),
                keep_message=draw(st.booleans()),
                clear_context=not draw(MOSTLY),
                clear_kept_context=not draw(MOSTLY),
                condition=draw(CONDITIONS),
                process=draw(PROCESSORS),
                dynamic=dynamics[target] if draw(st.booleans()) else None,
            )
        )
    graph = Graph(
        nodes=tuple(nodes),
        edges=tuple(edges),
        end=tuple(draw(st.lists(st.sampled_from(ids), max_size=2, unique=True))),
        max_iterations=draw(st.integers(2, 3)),
    )
    return starting(graph, [*dict.fromkeys(["a", draw(st.sampled_from(ids))])])


def starting(graph: Graph, start: list[str]) -> Graph:
    """The graph with these start nodes, one for each cycle at most."""
    for cycle in cycles_of(graph):
        for extra in [id for id in start if id in cycle][1:]:
            start.remove(extra)
    return msgspec.structs.replace(graph, start=tuple(start))


RULES = st.sampled_from([STANDARD, DEVALL])


def played(graph: Graph, rules: Rules, stage: Bounded) -> Result:
    try:
        return stage.run(Structure(graph, rules))
    except TooMuch:
        assume(False)
        raise AssertionError from None


def seen_by(stage: Stage) -> dict[str, list[tuple[Message, ...]]]:
    found: dict[str, list[tuple[Message, ...]]] = {}
    for id, inputs in stage.inputs:
        found.setdefault(id, []).append(inputs)
    return found


@LENGTHS
def test_a_run_comes_to_the_same_whoever_is_quick(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(graphs(), RULES, st.integers(0, 1000))
    def law(graph: Graph, rules: Rules, seed: int) -> None:
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
    def law(graph: Graph, rules: Rules, seed: int) -> None:
        queues: dict[str, list[Message]] = {node.id: [] for node in graph.nodes}
        delivered: Counter[int] = Counter()
        alive: list[Notice] = []

        def keep_book(notice: Notice) -> None:
            alive.append(notice)  # so that no other message gets its id
            if isinstance(notice, Delivered):
                queues[notice.target].append(notice.message)
                delivered[id(notice.message)] += 1
            elif isinstance(notice, Dropped):
                for message in notice.messages:
                    index = next(i for i, each in enumerate(queues[notice.target]) if each is message)
                    del queues[notice.target][index]

        class Watched(Bounded):
            def _seen(self, firings: list[FireNode]) -> list[FireNode]:
                for firing in firings:
                    assert [id(each) for each in firing.inputs] == [id(each) for each in queues[firing.node]]
                return super()._seen(firings)

        stage = Watched(pick=shuffled(seed), tell=keep_book)
        result = played(graph, rules, stage)
        assert result.leftover == {id: tuple(queue) for id, queue in queues.items() if queue}
        if result.error is None:
            crossings = [each for fired in stage.fired for each in fired.crossings if each.message is not None]
            assert all(delivered[id(each.message)] == 1 for each in crossings)

    law()


@LENGTHS
def test_without_cycles_whoever_is_triggered_runs_once_and_nobody_else(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(graphs(acyclic=True, subgraphs=False, failures=False), RULES)
    def law(graph: Graph, rules: Rules) -> None:
        stage = Bounded()
        result = played(graph, rules, stage)
        assert result.error is None
        triggered = {graph.edges[each.way].target for fired in stage.fired for each in fired.crossings if each.fires}
        assert len(result.order) == len(set(result.order))
        assert set(result.order) == {*graph.start, *triggered}

    law()


@LENGTHS
def test_a_cycle_ends_within_its_cap_and_cycles_inside_of_it_within_theirs(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(graphs(subgraphs=False, failures=False), RULES)
    def law(graph: Graph, rules: Rules) -> None:
        result = played(graph, rules, Bounded())
        nested = max((len(cycle) for cycle in cycles_of(graph)), default=0)
        assert max(Counter(result.order).values(), default=0) <= max(1, graph.max_iterations**nested)

    law()


@given(st.integers(1, 5), st.integers(1, 4), RULES)
def test_a_cycle_that_nothing_ends_goes_round_as_often_as_its_cap_says(length: int, cap: int, rules: Rules) -> None:
    ids = IDS[:length]
    nodes = tuple(Node(id=id, type="any", config=LiteralConfig(content=id)) for id in ids)
    edges = tuple(Edge(source=id, target=ids[(i + 1) % length]) for i, id in enumerate(ids))
    graph = Graph(nodes=nodes, edges=edges, start=(ids[0],), end=(ids[-1],), max_iterations=cap)
    result = Stage().run(Structure(graph, rules), task())
    assert result.order == list(ids) * cap
    assert (result.error is not None) is rules.cap_is_an_error
