"""DevAll workflows on our kernel: whole runs through `callboard.run` or, where reading the file would outweigh what is
measured, of a plan that was made beforehand; always with a listener on the bus."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import trio
from _serve import clock, in_a_fresh_process, resident, serve

import callboard
from callboard.actors.engine.workflow.job import Job
from callboard.actors.engine.workflow.machine.perform import Said
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.nodes import custom
from callboard.actors.engine.workflow.plan import WorkflowPlan, compile_workflow
from callboard.actors.engine.workflow.run import WorkflowResult, run_workflow
from callboard.actors.work.context import RunContext
from callboard.protocol.requests import Limits
from callboard.protocol.workflow import Known, read_workflow
from callboard.supervisors import Actor, Root


class Work:
    """A node type of ours, `work`: it takes `seconds`, and says what it was given last."""

    def load(self) -> Any:
        return self.run

    async def run(self, _me: Actor, job: Job) -> Said:
        if job.values:
            await trio.sleep(job.values["seconds"])
        return Said(outputs=job.inputs[-1:])


def plan(nodes: Sequence[str], edges: Sequence[str], start: str) -> WorkflowPlan:
    lines = ["graph:", f"  start: [{start}]", "  nodes:", *nodes, "  edges:" if edges else "  edges: []", *edges]
    known = Known(node_types=frozenset({"work"}))
    found, problems = read_workflow("\n".join(lines), "bench.yaml", known=known, environ={})
    assert found is not None, problems
    return compile_workflow(found, Path("bench.yaml"), {})


def node(id: str, kind: str) -> str:
    config = "{content: x}" if kind == "literal" else "{}"
    return f"    - {{id: {id}, type: {kind}, config: {config}}}"


def play(plan: WorkflowPlan, times: int) -> tuple[float, float, WorkflowResult]:
    """CPU and wall seconds of one run: the mean of so many, after one to warm up."""
    custom.node_types = lambda: {"work": cast("Any", Work())}
    context = RunContext(
        gateway=cast("Any", None), limits=Limits(), config_dir=Path(), environ={}, run_agent=cast("Any", None)
    )
    task = [Message(role="user", content="TASK")]

    async def main() -> tuple[float, float, WorkflowResult]:
        async with Root() as root:
            with root.bus.listen(lambda _event: None):
                for number in range(times + 1):
                    if number == 1:
                        began, there = clock(), time.perf_counter()
                    result = await root.spawn(run_workflow, plan, task, context, name=f"run{number}").result()
                return (clock() - began) / times, (time.perf_counter() - there) / times, result

    seconds, wall, result = trio.run(main)
    assert result.error is None, result.error
    return seconds, wall, result


def chained(n: int, kind: str) -> float:
    nodes = [node(f"n{i}", kind) for i in range(n)]
    edges = [f"    - {{from: n{i}, to: n{i + 1}}}" for i in range(n - 1)]
    seconds, _, result = play(plan(nodes, edges, "n0"), times=2)
    assert len(result.order) == n
    return seconds / n * 1e6


def chain(n: int) -> float:
    """µs per literal of a chain."""
    return chained(n, "literal")


def chain_work(n: int) -> float:
    """µs per node of a chain of nodes with an actor each."""
    return chained(n, "work")


def fan_out(n: int) -> float:
    """ms for `n` nodes at once, an actor each, and the join after them."""
    nodes = [node("start", "literal"), node("end", "passthrough"), *(node(f"n{i}", "work") for i in range(n))]
    edges = [f"    - {{from: start, to: n{i}}}\n    - {{from: n{i}, to: end}}" for i in range(n)]
    seconds, _, result = play(plan(nodes, edges, "start"), times=3)
    assert len(result.order) == n + 2
    return seconds * 1e3


def map_units(n: int) -> float:
    """ms of wall time for a map of `n` units of 20 ms, 100 at once."""
    text = "\\n".join(map(str, range(n)))
    nodes = [
        f'    - {{id: s, type: literal, config: {{content: "{text}"}}}}',
        "    - {id: m, type: work, config: {seconds: 0.02}}",
    ]
    edges = ["    - {from: s, to: m, dynamic: {type: map, config: {split_type: lines, max_parallel: 100}}}"]
    _, wall, result = play(plan(nodes, edges, "s"), times=3)
    assert len(result.outputs["m"]) == n
    return wall * 1e3


# --- runs that wait for people ----------------------------------------------------------------------------

ASKING = """
graph:
  nodes:
    - {id: boss, type: human, config: {description: "Well?"}}
    - {id: end, type: passthrough, config: {}}
  edges: [{from: boss, to: end}]
"""


class Desk:
    """A front end that collects questions."""

    name = "desk"

    def __init__(self) -> None:
        self.open: list[str] = []
        self._wanted = 0
        self._enough = trio.Event()

    async def until(self, wanted: int) -> None:
        """Wait until so many have been asked."""
        self._wanted, self._enough = wanted, trio.Event()
        await self._enough.wait()

    def on_question(self, question: callboard.Question) -> None:
        self.open.append(question.id)
        if len(self.open) == self._wanted:
            self._enough.set()

    def on_question_closed(self, question_id: str, by: str) -> None:
        """Nothing to do."""


async def park(n: int) -> tuple[float, float]:
    """Seconds until all of `n` runs have asked, and KB of memory that each of them holds."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "asking.yaml"
        file.write_text(ASKING)
        flow = callboard.load(file)
        desk = Desk()
        async with callboard.Root(config_dir=directory) as root:

            async def one() -> None:
                outcome = await callboard.run(flow, "go", root=root)
                assert outcome.output == "yes"

            async def parked(count: int, nursery: trio.Nursery) -> None:
                for _ in range(count):
                    nursery.start_soon(one)
                await desk.until(len(desk.open) + count)

            with root.inbox.attach(desk):
                async with trio.open_nursery() as nursery:
                    await parked(20, nursery)  # what is paid once is paid here
                    gc.collect()
                    before, began = resident(), time.perf_counter()
                    await parked(n, nursery)
                    seconds = time.perf_counter() - began
                    gc.collect()
                    after = resident()
                    for id in list(desk.open):
                        root.inbox.answer(id, "yes", by="desk")
            return seconds, (after - before) / n


def parked_seconds(n: int) -> float:
    """Seconds until all have asked."""
    return trio.run(park, n)[0]


def parked_memory(n: int) -> float:
    """KB per run."""
    return trio.run(park, n)[1]


if __name__ == "__main__":
    serve(
        {
            "chain": chain,
            "chain_work": chain_work,
            "fan_out": fan_out,
            "map_units": map_units,
            "parked_seconds": in_a_fresh_process("_parked_seconds"),
            "parked_memory": in_a_fresh_process("_parked_memory"),
            "_parked_seconds": parked_seconds,
            "_parked_memory": parked_memory,
        }
    )
