"""A decider that is told its past: large ones, those that are kept empty, and pasts of others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest

from callboard.actors.engine.driver import EarlierWork, fold
from callboard.actors.engine.graph.compile import compile_graph
from callboard.actors.engine.graph.map_decider import MapDecider
from callboard.actors.engine.graph.plan import GraphPlan
from callboard.actors.engine.workflow.decider import UnitsDecider, WorkflowDecider
from callboard.actors.engine.workflow.machine.structure import Structure
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.rules import STANDARD
from callboard.actors.work.journal.actor_journal import JournalPlayer
from callboard.actors.work.journal.run_journal import CannotGoOn
from callboard.protocol.effects import Effect, Work
from callboard.protocol.graph import MapNode, read_graph
from callboard.protocol.journal import MessageRow, decode, encode
from callboard.protocol.messages import MapBegun, NodeDone
from callboard.protocol.workflow import read_workflow
from callboard.protocol.workflow_messages import Crossing, Fired, NodeCodeDone, RunUnit, Unit, UnitsBegun, WorkflowBegun

GRAPH = """
name: g
start: m
nodes:
  m: {type: map, over: "{{items}}", as: it, branch: one, collect_into: all, output_key: done, next: e}
  one: {type: script, script: a.sh, next: two}
  two: {type: script, script: a.sh}
  e: {type: end, output: x}
"""


class Kept:
    """The rows of one decider, as they come back from a disk."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.player = JournalPlayer(cast("Any", self), "", [])

    run = property(lambda self: self)

    def refuse(self, error: CannotGoOn) -> None:
        """The run stays what it was; `fold` raises the error as well."""

    def append_message(self, _: str, message: Any) -> None:
        self.data.append(encode(MessageRow(0, message)))

    def tell(self, decider: Any, message: Any, *, first: bool = False) -> list[Effect]:
        effects: list[Effect] = decider.begin(message) if first else decider.on(message)
        self.player.wrote(message, effects)
        return effects

    def past(self, rows: int | None = None) -> JournalPlayer:
        """For another decider, which is told the first so many of them."""
        told = [decode(data) for data in self.data[:rows]]
        return JournalPlayer(cast("Any", self), "", cast("list[MessageRow]", told))


def plan_of(tmp_path: Path) -> tuple[GraphPlan, MapNode]:
    graph, problems = read_graph(GRAPH, "graph.yaml")
    assert graph is not None, problems
    node = graph.nodes["m"]
    assert isinstance(node, MapNode)
    return compile_graph(graph, tmp_path, values={}, compiled={}), node


def test_a_map_over_ten_thousand_items_is_kept_without_them_and_folds_to_the_same(tmp_path: Path) -> None:
    plan, node = plan_of(tmp_path)
    request = MapBegun(items=[{"text": "x" * 100, "n": n} for n in range(10_000)], state={"large": "y" * 100_000})
    kept, first, chance = Kept(), MapDecider(plan, node), random.Random(1)
    open_ = [cast("Work", effect).key for effect in kept.tell(first, request, first=True)]
    ended: list[Effect] = []
    half: set[int] = set()
    while open_:
        key = open_.pop(chance.randrange(len(open_)))
        at = first._items[key].at
        writes = {} if at == "one" else {"done": key}
        targets = ("two",) if at == "one" else ()
        ended = kept.tell(first, NodeDone(key=key, node=at, writes=writes, targets=targets))
        if at == "one":
            open_.append(key)
        if len(kept.data) == 9_000:
            half = set(open_)
    assert len(kept.data[0]) < 20
    assert max(map(len, kept.data)) < 40
    again = fold(MapDecider(plan, node), kept.past(), request)
    assert again.finish is not None
    assert again.finish.result.collected == list(range(10_000))
    assert [again.finish] == ended
    left = fold(MapDecider(plan, node), kept.past(9_000), request)
    assert (set(left.work), left.finish) == (half, None)


def workflow(yaml: str) -> Structure:
    found, problems = read_workflow(yaml, "wf.yaml")
    assert found is not None, problems
    return Structure(found.graph, STANDARD)


def test_a_workflow_and_its_units_are_kept_without_what_they_began_with() -> None:
    structure = workflow("graph: {nodes: [{id: A, type: human, config: {}}], edges: []}")
    begun = WorkflowBegun(task=(Message(role="user", content="x" * 10_000),))
    kept, first = Kept(), WorkflowDecider(structure)
    (fire,) = kept.tell(first, begun, first=True)
    units = tuple(RunUnit(key=n, name=f"A[{n}]", unit=Unit(begun.task, n, "x" * 1_000)) for n in range(1_000))
    kept_units, of_units = Kept(), UnitsDecider()
    kept_units.tell(of_units, UnitsBegun(units=units), first=True)
    for n in range(999):
        kept_units.tell(of_units, NodeCodeDone(n, outputs=(Message(role="user", content=str(n)),)))
    assert len(kept.data[0]) + len(kept_units.data[0]) < 20
    left = fold(UnitsDecider(), kept_units.past(), UnitsBegun(units=units))
    assert list(left.work.values()) == [units[999]]
    assert list(fold(WorkflowDecider(structure), kept.past(), begun).work.values()) == [fire]


def test_work_that_had_ended_is_told_with_its_path_and_what_came_of_it() -> None:
    structure = workflow(
        "graph: {start: [A], nodes: [{id: A, type: human, config: {}}, {id: B, type: human, config: {}}],"
        " edges: [{from: A, to: B}]}"
    )
    begun = WorkflowBegun(task=(Message(role="user", content="x"),))
    kept, first = Kept(), WorkflowDecider(structure)
    kept.tell(first, begun, first=True)
    said = (Message(role="user", content="y", source="A"),)
    fired = Fired(1, node="A", outputs=said, crossings=(Crossing(0, 0, fires=True),))
    kept.tell(first, fired)
    gone: list[EarlierWork] = []
    left = fold(WorkflowDecider(structure), kept.past(), begun, gone=gone)
    assert [(each.path, each.end) for each in gone] == [("1", fired)]
    (fire,) = left.work.values()
    assert [message.text for message in fire.inputs] == ["y"]  # type: ignore[attr-defined]
    assert [each.path for each in left.under_way(kept.past())] == ["2"]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("{nodes: [{id: B, type: literal, config: {content: x}}], edges: []}", "have the end of work 1"),
        (
            "{start: [B], nodes: [{id: B, type: human, config: {}}], edges: []}",
            "do not fit the agent, graph or workflow",
        ),
        (
            (
                "{start: [A], end: [A], nodes: [{id: A, type: human, config: {}},"
                " {id: B, type: literal, config: {content: x}}], edges: [{from: B, to: A}, {from: A, to: B}]}"
            ),
            "do not fit the agent, graph or workflow",
        ),
    ],
)
def test_the_past_of_another_workflow_is_refused(other: str, why: str) -> None:
    nodes = "nodes: [{id: A, type: human, config: {}}, {id: C, type: literal, config: {content: x}}]"
    one = workflow(f"graph: {{start: [A], {nodes}, edges: [{{from: A, to: C}}]}}")
    begun = WorkflowBegun(task=())
    kept, first = Kept(), WorkflowDecider(one)
    kept.tell(first, begun, first=True)
    said = (Message(role="user", content="y", source="A"),)
    kept.tell(first, Fired(1, node="A", outputs=said, crossings=(Crossing(0, 0, fires=True),)))
    with pytest.raises(CannotGoOn, match=f"its journal rows {why}"):
        fold(WorkflowDecider(workflow(f"graph: {other}")), kept.past(), begun)
