"""Callboard's scheduler on plans made by hand: nodes that do nothing but write one key, with a listener on the bus.

Everything a real run has is there: an actor per node execution, visits, timing, the merge of the state, and every
event of every node and step, built and delivered. Only the node's own work is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import trio
from _serve import clock, serve

from callboard.actors.engine.graph.compat import MODES
from callboard.actors.engine.graph.nodes.map import run_map_node
from callboard.actors.engine.graph.plan import GraphPlan, NodeJob, NodeResult, PlanStep, Work
from callboard.actors.engine.graph.result import GraphResult
from callboard.actors.engine.graph.run import run_graph
from callboard.actors.work.context import RunContext
from callboard.protocol.events import Event
from callboard.protocol.graph import EndNode, MapNode, ScriptNode, Settings
from callboard.supervisors import Actor, Root

NO_CONTEXT = cast("RunContext", None)
"""These nodes ask no model and call no agent."""


async def count_up(_me: Actor, job: NodeJob) -> NodeResult:
    return NodeResult(writes={"n": job.state["n"] + 1})


async def append(_me: Actor, job: NodeJob) -> NodeResult:
    return NodeResult(writes={"seen": job.state["item"]})


async def append_own(_me: Actor, job: NodeJob) -> NodeResult:
    return NodeResult(writes={"seen": job.node.id})


def step(id: str, work: Work, next: tuple[str, ...] | None) -> PlanStep:
    return PlanStep(
        id=id,
        kind="script",
        work=work,
        node=ScriptNode(id=id, script="-"),
        next=next,
        roads=frozenset(next or ()),
    )


def plan(steps: list[PlanStep], **rest: Any) -> GraphPlan:
    end = PlanStep(id="end", kind="end", work=None, node=EndNode(id="end"), output="{{n}}")
    return GraphPlan(
        name="bench",
        start=steps[0].id,
        steps={step.id: step for step in [*steps, end]},
        directory=Path(),
        compat=MODES["standard"],
        settings=Settings(max_concurrency=1_000),
        **rest,
    )


def play(plan: GraphPlan, times: int) -> tuple[float, GraphResult]:
    """CPU seconds of one run: the mean of so many, after as many to warm up."""
    heard = 0

    def listener(_event: Event) -> None:
        nonlocal heard
        heard += 1

    async def main() -> tuple[float, GraphResult]:
        async with Root() as root:
            with root.bus.listen(listener):
                for number in range(2 * times):
                    if number == times:
                        began = clock()
                    result = await root.spawn(run_graph, plan, "", NO_CONTEXT, name=f"run{number}").result()
                return (clock() - began) / times, result

    seconds, result = trio.run(main)
    if result.error is not None or not heard:
        raise AssertionError(f"{result.error}, {heard} events")
    return seconds, result


def chained(n: int) -> GraphPlan:
    """A plan of so many nodes in a row."""
    steps = [step(f"n{i}", count_up, (f"n{i + 1}",) if i + 1 < n else ("end",)) for i in range(n)]
    return plan(steps, initial_state={"n": 0})


def chain(n: int) -> float:
    """µs per node of a chain."""
    seconds, result = play(chained(n), times=10)
    assert result.state["n"] == n
    return seconds / n * 1e6


def fan_map(n: int) -> float:
    """ms for a map over `n` items, all at once."""
    node = MapNode(id="map", over="{{items}}", as_="item", branch="each", collect_into="all", output_key="seen")
    over = PlanStep(id="map", kind="map", work=run_map_node, node=node, next=("end",), roads=frozenset({"end"}))
    state = {"n": 0, "items": list(range(n))}
    seconds, result = play(plan([over, step("each", append, None)], initial_state=state), times=2)
    assert result.state["all"] == list(range(n))
    return seconds * 1e3


def fan_nodes(n: int) -> float:
    """ms for `n` parallel nodes whose writes a reducer appends to one list, and the join after them."""
    names = tuple(f"n{i:04}" for i in range(n))
    steps = [step("start", count_up, names), *(step(name, append_own, ("join",)) for name in names)]
    steps.append(step("join", count_up, ("end",)))
    seconds, result = play(plan(steps, initial_state={"n": 0, "seen": []}, reducers={"seen": "append"}), times=2)
    assert result.state["seen"] == list(names)
    return seconds * 1e3


if __name__ == "__main__":
    serve({"chain": chain, "fan_map": fan_map, "fan_nodes": fan_nodes})
