"""Runs that are kept and runs that are not, and the journal alone."""

from __future__ import annotations

import contextvars
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest import mock

import _dormant
import trio
from _serve import clock, in_a_fresh_process, serve
from graph_callboard import NO_CONTEXT, append, chain, chained, plan, step
from workflow_callboard import Work, node
from workflow_callboard import plan as flow_plan

import callboard
from callboard.actors.engine.graph.nodes.map import run_map_node
from callboard.actors.engine.graph.plan import GraphPlan, PlanStep
from callboard.actors.engine.graph.run import run_graph
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.nodes import custom
from callboard.actors.engine.workflow.plan import WorkflowPlan as Flow
from callboard.actors.engine.workflow.run import run_workflow
from callboard.actors.runs.rerun.fork import stored_rows
from callboard.actors.work.context import RunContext
from callboard.actors.work.journal.actor_journal import Scopes
from callboard.actors.work.journal.run_journal import JournaledRun, RunPast, past_of
from callboard.protocol.events import Event
from callboard.protocol.graph import MapNode
from callboard.protocol.journal import FOLD, About, Began, encode
from callboard.protocol.requests import Limits, RunRequest
from callboard.supervisors import Ref, Root
from callboard.supervisors.journal.claiming import claim
from callboard.supervisors.journal.journal import Journal, open_journal

ABOUT = About("bench", "bench", "", "", "", "")
BEGAN = Began(0, RunRequest(target="bench", prompt=""), None, FOLD, "bench", 0.0)


@asynccontextmanager
async def journal() -> AsyncIterator[Journal]:
    """One on this disk, and not in memory."""
    directory = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".journal-"))
    try:
        kept = await open_journal(directory / "journal")
        yield kept
        await kept.aclose()
    finally:
        shutil.rmtree(directory)


def inside(kept: Journal, root: Root, name: str, past: RunPast | None = None) -> contextvars.Context:
    """The context of a run that is kept."""
    rows = kept.begin(name)
    run = JournaledRun(rows, ABOUT, past, lambda: False)
    if past is None:
        run.append("", BEGAN)
    return Scopes(run, root.actor).inside(contextvars.copy_context())


def chain_durable(n: int, times: int = 10) -> float:
    """µs per node of a chain, as `chain`."""
    graph = chained(n)

    def listener(_event: Event) -> None:
        return

    async def main() -> float:
        async with journal() as kept, Root() as root:
            with root.bus.listen(listener):
                for number in range(2 * times):
                    if number == times:  # the rows of the runs before are not theirs to pay for
                        await kept.barrier()
                        began = clock()
                    context = inside(kept, root, f"run-{number}")
                    ref = context.run(root.spawn, run_graph, graph, "", NO_CONTEXT, name=f"run{number}")
                    assert (await ref.result()).error is None
                await kept.barrier()
                return (clock() - began) / times

    return trio.run(main) / n * 1e6


def rows(n: int, *, whole: bool) -> float:
    """µs per row: of the event loop's thread, or of all of the process."""
    data = os.urandom(600)

    async def main() -> float:
        async with journal() as kept:
            runs = [kept.begin(f"run-{number}") for number in range(100)]
            began, cpu = time.thread_time(), clock()
            for number in range(n):
                runs[number % 100].append("1/2", data)
                if number % 100 == 0:
                    await trio.lowlevel.checkpoint()
            seconds = time.thread_time() - began
            await kept.barrier()
            return clock() - cpu if whole else seconds

    return trio.run(main) / n * 1e6


def barriers(n: int, part: float) -> float:
    """ms of a barrier with one row, of a hundred a second."""

    async def main() -> float:
        async with journal() as kept:
            run = kept.begin("run-1")
            took = []
            for _ in range(n):
                run.append("1/2", b"x" * 100)
                began = time.perf_counter()
                await run.barrier()
                took.append(time.perf_counter() - began)
                await trio.sleep(max(0.0, 0.01 - took[-1]))
            return sorted(took)[int(part * (n - 1))]

    return trio.run(main) * 1e3


def back(play: Callable[[Root], Ref[Any]], there: Callable[[Any], bool], lost: int = 0) -> float:
    """CPU ms until a run stands where it was at its end, or so many rows before it: claimed, decoded, folded."""

    async def main() -> float:
        directory = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".journal-"))
        try:
            first = await open_journal(directory / "journal")
            async with Root() as root:
                assert there(await inside(first, root, "run-1").run(play, root).result())
            await first.aclose()
            second = await open_journal(directory / "journal")
            began = clock()
            ((_, kept),) = await claim(second, first.sign)
            past = past_of(kept.rows[: len(kept.rows) - lost])
            async with Root() as root:
                assert there(await inside(second, root, "run-2", past).run(play, root).result())
            seconds = clock() - began
            await second.aclose()
            return seconds
        finally:
            shutil.rmtree(directory)

    assert encode(BEGAN)
    return trio.run(main) * 1e3


def graph_back(graph: GraphPlan, key: str, value: Any, lost: int = 0) -> float:
    """The same of a run of this graph, which ends with that in its state."""

    def play(root: Root) -> Ref[Any]:
        return root.spawn(run_graph, graph, "", NO_CONTEXT)

    return back(play, lambda result: result.error is None and result.state[key] == value, lost)


def resume(n: int) -> float:
    """Of so many nodes in a chain."""
    return graph_back(chained(n), "n", n)


def resume_map(n: int) -> float:
    """Of a map over so many items; that its node was left is not on the disk yet."""
    node = MapNode(id="m", over="{{items}}", branch="b", collect_into="all", output_key="seen", as_="item")
    steps = [
        PlanStep(id="m", kind="map", work=run_map_node, node=node, next=("end",), roads=frozenset({"end"})),
        step("b", append, None),
    ]
    return graph_back(plan(steps, initial_state={"n": 0, "items": list(range(n))}), "all", list(range(n)), 1)


def flow_back(flow: Flow, last: str, said: int, lost: int = 0) -> float:
    """Of a run of this workflow, whose last node says so many messages."""
    context = RunContext(
        gateway=cast("Any", None), limits=Limits(), config_dir=Path(), environ={}, run_agent=cast("Any", None)
    )
    with mock.patch.object(custom, "node_types", return_value={"work": Work()}):
        return back(
            lambda root: root.spawn(run_workflow, flow, [Message(role="user", content="TASK")], context),
            lambda result: result.error is None and len(result.outputs[last]) == said,
            lost,
        )


def resume_flow(n: int) -> float:
    """Of so many nodes of a workflow, in a chain, with two rows each."""
    nodes = [node(f"n{i}", "work") for i in range(n)]
    edges = [f"    - {{from: n{i}, to: n{i + 1}}}" for i in range(n - 1)]
    return flow_back(flow_plan(nodes, edges, "n0"), f"n{n - 1}", 1)


def resume_units(n: int) -> float:
    """Of a map of a workflow with so many units, with two rows each; that its node was left is not on the disk yet."""
    text = "\\n".join(map(str, range(n)))
    nodes = [f'    - {{id: s, type: literal, config: {{content: "{text}"}}}}', node("m", "work")]
    edges = ["    - {from: s, to: m, dynamic: {type: map, config: {split_type: lines, max_parallel: 100}}}"]
    return flow_back(flow_plan(nodes, edges, "s"), "m", n, 1)


ASKS = """
name: asks
start: each
settings: {max_concurrency: 1}
nodes:
  each: {type: map, over: "{{items}}", as: item, branch: one, collect_into: all, output_key: said, next: done}
  one: {type: agent, agent: asker, prompt: "{{item}}", state_updates: {said: "{{output}}"}}
  done: {type: end, output: done}
"""
ASKER = """
name: asker
start: ask
nodes:
  ask: {type: input, question: "Go on?", state_updates: {said: "{{input}}"}, next: done}
  done: {type: end, output: "{{said}}"}
"""


ROWS_EACH = 5
"""Of each question: it, its answer, and what three deciders are told."""


class Answering:
    """A front end that says `on` to so many questions of a run, and then no more."""

    name = "answering"

    def __init__(self, root: callboard.Root, run: str, most: int) -> None:
        self.asked_last = trio.Event()
        self._root = root
        self._run = run
        self._left = most

    def on_question(self, question: callboard.Question) -> None:
        if question.run != self._run:
            return
        self._left -= 1
        if self._left < 0:
            self.last = question.id
            self.asked_last.set()
        else:
            self._root.inbox.answer(question.id, "on", by="answering")

    def on_question_closed(self, question_id: str, by: str) -> None:
        """Nothing is shown."""


def fork(n: int) -> float:
    """Wall ms until a fork behind so many rows asks what was asked there."""

    async def main(home: Path) -> float:
        async with (
            callboard.Root(config_dir=home / "config", wait_for_front_end=True) as root,
            trio.open_nursery() as nursery,
        ):
            person, items = Answering(root, "run-1", n // ROWS_EACH), {"items": list(range(n))}
            with root.inbox.attach(person):
                nursery.start_soon(partial(callboard.run, "asks", "", state=items, durable=True, id="run-1", root=root))
                await person.asked_last.wait()
            other = Answering(root, "run-2", 0)
            with root.inbox.attach(other):
                began = time.perf_counter()
                nursery.start_soon(partial(callboard.fork, "run-1", at=person.last, id="run-2", root=root))
                await other.asked_last.wait()
                seconds = time.perf_counter() - began
            assert len(stored_rows(home / "state" / "callboard" / "journal", "run-2")[0]) >= n
            nursery.cancel_scope.cancel()
            return seconds * 1e3

    home = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".fork-"))
    try:
        for name, text in {"asks": ASKS, "asker": ASKER}.items():
            agent = home / "config" / "agents" / name
            agent.mkdir(parents=True)
            (agent / "graph.yaml").write_text(text)
        (home / "config" / "config.yaml").write_text("{}\n")
        with mock.patch.dict(os.environ, XDG_STATE_HOME=str(home / "state")):
            return trio.run(main, home)
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    serve(
        {
            "chain": chain,
            "chain_durable": chain_durable,
            "row": lambda n: rows(n, whole=False),
            "written": lambda n: rows(n, whole=True),
            "barrier": lambda n: barriers(n, 0.5),
            "barrier_99": lambda n: barriers(n, 0.99),
            "resume": resume,
            "resume_map": resume_map,
            "resume_flow": resume_flow,
            "resume_units": resume_units,
            "fork": fork,
            "dormant": in_a_fresh_process("dormant_here"),
            "dormant_here": _dormant.memory,
            "dormant_each": in_a_fresh_process("dormant_each_here"),
            "dormant_each_here": _dormant.each,
            "dormant_wake": _dormant.wake,
            "dormant_back": _dormant.back,
        }
    )
