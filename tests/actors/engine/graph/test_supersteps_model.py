"""Random graphs of instant nodes against a model of super-steps that fits on a page.

The plans are made by hand: a node's work is a Python function. What the scheduler does with them (order, merge,
failures, ends) has to be what the model says, and what `join: all` promises has to hold whatever the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import fragment
from support.second_decider import twins

from callboard.actors.engine.graph.compat import STANDARD
from callboard.actors.engine.graph.plan import GraphPlan, NodeJob, NodeResult, PlanStep
from callboard.actors.engine.graph.result import GraphResult
from callboard.actors.engine.graph.run import run_graph
from callboard.actors.work.context import RunContext
from callboard.protocol.errors import NodeFailed
from callboard.protocol.graph import EndNode, ScriptNode
from callboard.protocol.graph import Settings as GraphSettings
from callboard.protocol.requests import Limits
from callboard.supervisors import Actor, Root

REDUCERS = {"total": "sum", "seen": "append", "top": "max"}
CAP = 3


class Node(msgspec.Struct, frozen=True):
    """What one node of a random graph does: the same in the model and in the plan."""

    id: str
    next: tuple[str, ...]
    writes: dict[str, int]
    goto: str | None = None
    back_while: int = 0
    fails: bool = False
    fallback: str | None = None
    on_error: str | None = None
    join: bool = False
    end: bool = False

    def does(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Its writes and its targets, given the snapshot."""
        if self.goto is not None and state.get("total", 0) < self.back_while:
            return self.writes, (self.goto,)
        return self.writes, self.next


@st.composite
def graphs(draw: st.DrawFn, *, plain: bool = False) -> list[Node]:
    """Up to eight nodes, the last an end; edges lead forward, `goto` anywhere. `plain`: nothing but joins."""
    ids = "abcdefgh"[: draw(st.integers(2, 8))]
    nodes = []
    for index, id in enumerate(ids[:-1]):
        later = st.sampled_from(ids[index + 1 :])
        targets = tuple(draw(st.lists(later, min_size=1, max_size=3, unique=True)))
        if plain:
            nodes.append(Node(id, targets, {}, join=True))
            continue
        keys = st.sampled_from(["total", "seen", "top", "free"])
        fails = draw(st.integers(0, 5)) == 0
        nodes.append(
            Node(
                id,
                targets,
                draw(st.dictionaries(keys, st.integers(0, 3), max_size=2)),
                goto=draw(st.none() | st.sampled_from(ids)),
                back_while=draw(st.integers(0, 4)),
                fails=fails,
                fallback=draw(st.none() | later) if fails else None,
                on_error=draw(st.sampled_from([None, "continue", "collect"])) if fails else None,
            )
        )
    return [*nodes, Node(ids[-1], (), {}, end=True, join=plain)]


# --- the model -----------------------------------------------------------------------------------------------


class Ended(msgspec.Struct):
    """How the model says it ends."""

    order: list[str]
    state: dict[str, Any]
    error: str = ""


def model(nodes: dict[str, Node], start: str) -> Ended:
    """Super-steps without actors, time or joins."""
    ended = Ended([], {"initial_prompt": ""})
    visits: dict[str, int] = {}
    frontier = [start]
    while True:
        for id in frontier:
            visits[id] = visits.get(id, 0) + 1
        if any(visits[id] > CAP for id in frontier):
            ended.error = "visited"
            return ended
        ended.order += frontier
        working = sorted(id for id in frontier if not nodes[id].end)
        if any(nodes[id].fails and not nodes[id].fallback and not nodes[id].on_error for id in working):
            ended.error = "boom"
            return ended
        writes: dict[str, dict[str, Any]] = {}
        following: list[str] = []
        for id in working:
            node = nodes[id]
            if not node.fails:
                writes[id], targets = node.does(ended.state)
            elif node.fallback:
                writes[id], targets = {}, (node.fallback,)
            else:
                errors = [{"node": id, "error": "boom", "code": "node_failed"}]
                writes[id], targets = ({"errors": errors} if node.on_error == "collect" else {}), node.next
            following += targets
        state = merged(ended.state, writes)
        if state is None:
            ended.error = "no reducer"
            return ended
        ended.state = state
        if any(nodes[id].end for id in frontier):
            return ended
        frontier = list(dict.fromkeys(following))


def merged(before: dict[str, Any], writes: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The next state; None if two nodes wrote a key that has no reducer."""
    after = dict(before)
    writers: dict[str, int] = {}
    for id in sorted(writes):
        for key, value in writes[id].items():
            if key in before and before[key] == value:
                continue
            writers[key] = writers.get(key, 0) + 1
            if key == "total":
                after[key] = after.get(key, 0) + value
            elif key == "seen":
                after[key] = [*after.get(key, []), value]
            elif key == "top":
                after[key] = max(after.get(key, value), value)
            elif key == "errors":
                after[key] = after.get(key, []) + value
            else:
                after[key] = value
    return None if writers.get("free", 0) > 1 else after


# --- the same with actors ------------------------------------------------------------------------------------


def plan(nodes: list[Node]) -> GraphPlan:
    """The graph as the scheduler wants it."""
    return GraphPlan(
        name="random",
        start=nodes[0].id,
        steps={node.id: step(node) for node in nodes},
        directory=Path(),
        compat=STANDARD,
        settings=GraphSettings(max_loop_iterations=CAP, max_concurrency=2),
        reducers={**REDUCERS, "errors": "extend"},
    )


def step(node: Node) -> PlanStep:
    async def work(me: Actor, job: NodeJob) -> NodeResult:
        if node.fails:
            raise NodeFailed("boom")
        writes, targets = node.does(job.state)
        await trio.lowlevel.checkpoint()
        return NodeResult(writes=dict(writes), goto=targets if targets != node.next else None)

    end = EndNode(id=node.id)
    roads = frozenset([*node.next, *filter(None, [node.goto, node.fallback])])
    return PlanStep(
        id=node.id,
        kind="end" if node.end else "script",
        work=None if node.end else work,
        node=end if node.end else ScriptNode(id=node.id, script="x"),
        next=node.next or None,
        fallback=node.fallback,
        on_error=node.on_error,
        join_all=node.join,
        roads=roads,
    )


def perform(nodes: list[Node]) -> GraphResult:
    """Run it."""

    async def run_agent(*_: object) -> str:
        raise AssertionError("no agents here")

    async def main() -> GraphResult:
        context = RunContext(gateway=None, limits=Limits(), config_dir=Path(), environ={}, run_agent=run_agent)
        async with Root() as root:
            return await root.spawn(run_graph, plan(nodes), "", context).result()

    return trio.run(main)


@pytest.mark.parametrize("examples", [40, pytest.param(500, marks=pytest.mark.soak)])
def test_any_graph_runs_as_the_model_says_and_its_messages_lead_to_the_same_again(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(graphs())
    def law(nodes: list[Node]) -> None:
        expected = model({node.id: node for node in nodes}, nodes[0].id)
        with twins() as replayed:
            result = perform(nodes)
        assert replayed
        assert result.order == expected.order
        assert result.state == expected.state
        if expected.error:
            assert expected.error in str(result.error)
        else:
            assert result.error is None

    law()


@settings(max_examples=100, deadline=None)
@given(graphs(plain=True))
def test_where_every_node_joins_each_runs_once_and_after_all_that_lead_to_it(nodes: list[Node]) -> None:
    by_id = {node.id: node for node in nodes}
    reachable: set[str] = set()
    todo = [nodes[0].id]
    while todo:
        id = todo.pop()
        if id not in reachable:
            reachable.add(id)
            todo += by_id[id].next
    result = perform(nodes)
    assert result.error is None
    assert sorted(result.order) == sorted(reachable)
    place = {id: index for index, id in enumerate(result.order)}
    for id in reachable:
        for target in by_id[id].next:
            assert place[id] < place[target]


@pytest.mark.parametrize("examples", [30, pytest.param(500, marks=pytest.mark.soak)])
def test_joins_anywhere_never_lock_up(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(graphs(), st.data())
    def law(nodes: list[Node], data: st.DataObject) -> None:
        with_joins = [msgspec.structs.replace(node, join=data.draw(st.booleans())) for node in nodes]
        result = perform(with_joins)
        assert result.error is None or any(
            text in str(result.error)
            for text in (
                "visited",
                "boom",
                fragment("engine.graph.reducers.merge_writes.2"),
                fragment("engine.graph.decider.GraphDecider._next_step"),
            )
        )

    law()
