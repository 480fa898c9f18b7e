"""Graphs made in Python: functions and agents as nodes, edges, branches, loops, maps; and as YAML."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply, Request

import callboard
from callboard.protocol.errors import InvalidFile, JournalError, UsageError
from callboard.protocol.graph import read_graph

WRITER = callboard.Agent(name="writer", instructions="Write.")


@dataclass
class Topics:
    topics: list[str]


async def test_functions_and_agents_are_nodes_of_one_graph(agent_runner: AgentRunner) -> None:
    graph = callboard.Graph("review", state={"notes": []})

    @graph.node("plan")
    async def plan(state: dict[str, Any]) -> dict[str, Any]:
        assert state["initial_prompt"] == "engines"
        return {"topics": ["speed", "price"]}

    graph.map("look", WRITER, over="topics", item="topic", prompt="On {{topic}}.", into="notes")

    @graph.node("join", into="text")
    def join(state: dict[str, Any]) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return "; ".join(state["notes"])

    graph.edge("plan", "look", "join", "done")
    graph.end("done", output="{{text}}")
    agent_runner.models.answer_with(lambda request: f"about {request.prompt}")
    outcome = await agent_runner.run("engines", target=graph)  # type: ignore[arg-type] # the stage's narrower type
    assert outcome.error is None
    assert outcome.output == outcome.final == "about On speed.; about On price."
    assert outcome.order == ["plan", "look", "join", "done"]
    assert outcome.state["topics"] == ["speed", "price"]
    assert {e.data.type for e in agent_runner.events if e.kind == "node.entered"} >= {"function", "map", "agent"}
    agent_runner.check_stream()


async def test_a_branch_may_lead_back(agent_runner: AgentRunner) -> None:
    graph = callboard.Graph("count", state={"n": 0})

    @graph.node("add")
    def add(state: dict[str, Any]) -> dict[str, Any]:
        return {"n": state["n"] + 1}

    async def enough(state: dict[str, Any]) -> bool:
        await trio.lowlevel.checkpoint()
        return bool(state["n"] >= 3)

    graph.branch("add", enough, {True: "done", False: "add"})
    graph.end("done", output="{{n}}")
    outcome = await callboard.run(graph, root=agent_runner.root)
    assert outcome.output == "3"
    assert outcome.nodes["add"].visits == 3


async def test_a_loop_without_end_is_stopped(agent_runner: AgentRunner) -> None:
    graph = callboard.Graph("endless", max_loop_iterations=5)
    graph.node("a", lambda: None)
    graph.branch("a", lambda: "a", ["a", "done"])
    graph.end("done")
    outcome = await callboard.run(graph, root=agent_runner.root)
    assert outcome.error is not None
    assert outcome.error.code == "graph"


async def test_nodes_run_side_by_side_and_join(agent_runner: AgentRunner) -> None:
    graph = callboard.Graph("wide", reducers={"seen": "extend"}, state={"seen": []})
    both = [trio.Event(), trio.Event()]

    async def one() -> dict[str, Any]:
        both[0].set()
        await both[1].wait()
        return {"seen": ["one"]}

    async def two() -> dict[str, Any]:
        both[1].set()
        await both[0].wait()
        return {"seen": ["two"]}

    graph.node("begin", lambda: None, next=["one", "two"])
    graph.node("one", one)
    graph.node("two", two)
    graph.edge(["one", "two"], "done")
    graph.end("done", output="{{seen}}")
    outcome = await callboard.run(graph, root=agent_runner.root)
    assert outcome.output == '["one","two"]'


async def test_a_function_maps_over_items_and_a_failing_one_fails_the_run(agent_runner: AgentRunner) -> None:
    graph = callboard.Graph("squares", state={"numbers": [1, 2, 3]})
    graph.map("square", lambda n: n * n, over="numbers", into="squares", next="done")
    graph.end("done", output="{{squares}}")
    assert (await callboard.run(graph, root=agent_runner.root)).output == "[1,4,9]"
    outcome = await callboard.run(graph, root=agent_runner.root, state={"numbers": [1, "x"]})
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert "TypeError" in outcome.error.message


async def test_a_node_has_dependencies_and_runs_agents(agent_runner: AgentRunner) -> None:
    graph = callboard.Graph("g")

    @graph.node("ask", into="answer")
    async def ask(ctx: callboard.Context[str], state: dict[str, Any]) -> str:
        outcome = await ctx.run(WRITER, f"{ctx.deps}: {state['initial_prompt']}")
        return outcome.unwrap()

    graph.edge("ask", "done")
    graph.end("done", output="{{answer}}")
    agent_runner.models.answer_with(lambda request: request.prompt.upper())
    outcome = await callboard.run(graph, "why", deps="ann", root=agent_runner.root)
    assert outcome.output == "ANN: WHY"
    assert outcome.turns == 1
    assert [child.agent for child in outcome.children] == ["writer"]


async def test_the_typed_result_of_an_agent_is_in_the_state(agent_runner: AgentRunner) -> None:
    planner = callboard.Agent(name="planner", instructions="Plan.", result=Topics)
    lister = callboard.Agent(name="lister", instructions="List.", result=list[int])
    graph = callboard.Graph("g")
    graph.node("plan", planner, into="plan", next="list")
    graph.node("list", lister, into="numbers", next="done")
    graph.end("done", output="{{plan.topics}} {{numbers[1]}}")

    def answer(request: Request) -> str:
        if request.system.startswith("List"):
            return '{"result": [1, 2]}'
        return '{"topics": ["a"]}' if "can't be used" in request.prompt else '{"topics": 3}'

    agent_runner.models.answer_with(answer)
    outcome = await callboard.run(graph, "go", root=agent_runner.root)
    assert outcome.output == '["a"] 2'
    assert len(agent_runner.models.requests) == 3


async def test_other_nodes_are_as_files_have_them(agent_runner: AgentRunner) -> None:
    graph = callboard.Graph("asks")
    graph.node("who", {"type": "input", "question": "Who?"}, into="who", next="greet")
    graph.node("greet", {"type": "llm", "prompt": "Greet {{who}}."}, into="text", next="done")
    graph.end("done", output="{{text}}")
    agent_runner.models.script("Hello, Ann!")
    outcome = await callboard.run(graph, root=agent_runner.root, answers=["Ann"])
    assert outcome.output == "Hello, Ann!"
    assert agent_runner.models.requests[0].prompt == "Greet Ann."


async def test_the_error_of_a_function_is_that_of_its_node(
    agent_runner: AgentRunner, caplog: pytest.LogCaptureFixture
) -> None:
    graph = callboard.Graph("g")

    def breaks(state: dict[str, Any]) -> None:
        raise KeyError("nope")

    graph.node("a", breaks, next="done")
    graph.end("done")
    outcome = await callboard.run(graph, root=agent_runner.root)
    assert outcome.error is not None
    assert (outcome.error.node, outcome.error.message) == ("a", "KeyError: 'nope'")
    assert "breaks" in caplog.text


async def test_a_function_ends_in_its_time(agent_runner: AgentRunner) -> None:
    graph = callboard.Graph("g")
    graph.node("a", trio_sleep, timeout=0.01, next="done", fallback="late")
    graph.end("done")
    graph.end("late", output="too late")
    outcome = await callboard.run(graph, root=agent_runner.root)
    assert outcome.output == "too late"


async def trio_sleep() -> None:
    await trio.sleep_forever()


async def test_the_state_that_a_function_changes_is_its_own(agent_runner: AgentRunner) -> None:
    graph = callboard.Graph("g", state={"list": [1]})

    def spoil(state: dict[str, Any]) -> None:
        state["list"].append(2)

    graph.node("a", spoil, next="done")
    graph.end("done", output="{{list}}")
    assert (await callboard.run(graph, root=agent_runner.root)).output == "[1]"
    assert (await callboard.run(graph, root=agent_runner.root)).output == "[1]"


async def test_an_interrupted_run_goes_on_where_it_was(fake_model: FakeModels, tmp_path: Path) -> None:
    config = fake_model.config_dir(tmp_path / "config")
    began = trio.Event()
    calls: list[str] = []
    clerk = callboard.Agent(name="clerk", instructions="Say it.", result=Topics)

    async def first() -> dict[str, Any]:
        calls.append("first")
        return {"n": 1}

    @callboard.tool(effect="read")
    async def second(ctx: callboard.Context[str], state: dict[str, Any]) -> dict[str, Any]:
        calls.append("second")
        if calls.count("second") == 1:
            began.set()
            await trio.sleep_forever()
        return {"n": state["n"] + 1, "by": ctx.deps}

    def graph() -> callboard.Graph:
        made = callboard.Graph("long")
        made.node("first", first, next="second")
        made.node("second", second, next="third")
        made.node("third", clerk, into="said", next="done")
        made.end("done", output="{{n}} {{by}} {{said.topics}}")
        return made

    fake_model.script('{"topics": ["a"]}')
    outcomes: list[callboard.Outcome] = []

    async def run(root: callboard.Root) -> None:
        outcomes.append(await root.run(graph(), "go", durable=True, deps="ann"))

    async with trio.open_nursery() as nursery, callboard.Root(config_dir=config) as root:
        nursery.start_soon(run, root)
        await began.wait()
        await root.close()
    assert outcomes[0].resumable
    async with callboard.Root(config_dir=config) as root:
        with pytest.raises(JournalError):
            await root.resume(outcomes[0].run_id)
    async with callboard.Root(config_dir=config) as root:
        outcome = await root.resume(outcomes[0].run_id, agent=graph(), deps="bob")
    assert outcome.output == '2 bob ["a"]'
    assert calls == ["first", "second", "second"]


async def test_an_interrupted_agent_goes_on_with_its_functions(fake_model: FakeModels, tmp_path: Path) -> None:
    config = fake_model.config_dir(tmp_path / "config")
    began = trio.Event()
    calls: list[str] = []

    @callboard.tool(effect="read")
    async def wait(ctx: callboard.Context[None]) -> str:
        calls.append(ctx.call_id)
        if len(calls) == 1:
            began.set()
            await trio.sleep_forever()
        return "waited"

    agent = callboard.Agent(name="clerk", instructions="Wait.", tools=[wait], result=Topics)
    fake_model.script(Reply(calls=[("wait", {})]), '{"topics": ["x"]}')
    outcomes: list[callboard.Outcome[Topics]] = []

    async def run(root: callboard.Root) -> None:
        outcomes.append(await root.run(agent, "go", durable=True))

    async with trio.open_nursery() as nursery, callboard.Root(config_dir=config) as root:
        nursery.start_soon(run, root)
        await began.wait()
        await root.close()
    async with callboard.Root(config_dir=config) as root:
        with pytest.raises(JournalError):
            await root.resume(outcomes[0].run_id)
    async with callboard.Root(config_dir=config) as root:
        outcome = await root.resume(outcomes[0].run_id, agent=agent)
    assert outcome.unwrap() == Topics(["x"])
    assert len(calls) == 2


async def test_an_agent_that_a_tool_runs_goes_on_with_an_interrupted_run(
    fake_model: FakeModels, tmp_path: Path
) -> None:
    config = fake_model.config_dir(tmp_path / "config")
    began = trio.Event()
    said: list[str] = []
    worker = callboard.Agent(name="worker", instructions="Work.")

    @callboard.tool(effect="read")
    async def ask(ctx: callboard.Context[None]) -> str:
        said.append((await ctx.run(worker, "go")).unwrap())
        if len(said) == 1:
            began.set()
            await trio.sleep_forever()
        return said[-1]

    lead = callboard.Agent(name="lead", instructions="Lead.", tools=[ask])
    fake_model.answer_with(
        lambda request: (
            f"work {len(said)}"
            if request.system == "Work."
            else request.results[-1]
            if request.results
            else Reply(calls=[("ask", {})])
        )
    )
    outcomes: list[callboard.Outcome] = []

    async def run(root: callboard.Root) -> None:
        outcomes.append(await root.run(lead, "go", durable=True))

    async with trio.open_nursery() as nursery, callboard.Root(config_dir=config) as root:
        nursery.start_soon(run, root)
        await began.wait()
        await root.close()
    async with callboard.Root(config_dir=config) as root:
        outcome = await root.resume(outcomes[0].run_id, agent=lead)
    assert outcome.status == "done", outcome.error
    assert outcome.final == said[-1]
    assert len(said) == 2


def test_a_graph_prints_as_yaml() -> None:
    graph = callboard.Graph("shop", state={"n": 1}, reducers={"n": "sum"}, max_concurrency=2)
    graph.node("plan", trio_sleep, timeout=5, next="write")
    graph.node("write", WRITER, prompt="On {{n}}.", into="text")
    graph.branch("write", trio_sleep, ["done", "plan"])
    graph.end("done", output="{{text}}")
    data = yaml.safe_load(graph.to_yaml())
    assert data["start"] == "plan"
    assert data["settings"] == {"max_concurrency": 2}
    here = trio_sleep.__module__
    assert data["nodes"] == {
        "plan": {"type": "function", "function": f"{here}:trio_sleep", "timeout": 5.0, "next": "write"},
        "write": {
            "type": "agent",
            "agent": "writer",
            "prompt": "On {{n}}.",
            "state_updates": {"text": "{{output}}"},
            "next": "write_branch",
        },
        "write_branch": {"type": "function", "function": f"{here}:trio_sleep", "routes": ["done", "plan"]},
        "done": {"type": "end", "output": "{{text}}"},
    }


def test_a_graph_without_functions_reads_back_as_it_is() -> None:
    graph = callboard.Graph("asks", state={"notes": []}, reducers={"notes": "append"})
    graph.node("who", {"type": "input", "question": "Who?"}, into="who", next=["a", "b"])
    graph.node("a", {"type": "llm", "prompt": "{{who}}", "on_error": "continue"}, into="notes", next="done")
    graph.node("b", {"type": "llm", "prompt": "{{who}}"}, into="notes", next="done")
    graph.node("done", {"type": "end", "output": "{{notes}}", "join": "all"})
    read, problems = read_graph(graph.to_yaml(), "graph.yaml")
    assert problems == []
    assert read is not None
    assert read.nodes == graph.build().graph.nodes


def bad_edge(graph: callboard.Graph) -> None:
    graph.node("a", lambda: None, next="nowhere")
    graph.end("done")


def no_end(graph: callboard.Graph) -> None:
    graph.node("a", lambda: None, next="a2")
    graph.node("a2", lambda: None)


def cycle(graph: callboard.Graph) -> None:
    graph.node("a", lambda: None, next="b")
    graph.node("b", lambda: None, next="a")
    graph.end("done")


def edge_from_nowhere(graph: callboard.Graph) -> None:
    graph.end("done")
    graph.edge("nowhere", "done")


@pytest.mark.parametrize("make", [bad_edge, no_end, cycle, edge_from_nowhere, lambda graph: None])
def test_a_graph_is_checked_before_it_runs(make: Any) -> None:
    graph = callboard.Graph("g")
    make(graph)
    with pytest.raises(InvalidFile):
        graph.build()


def twice(graph: callboard.Graph) -> None:
    graph.end("a")
    graph.end("a")


def two_agents(graph: callboard.Graph) -> None:
    graph.node("a", callboard.Agent(name="x"))
    graph.node("b", callboard.Agent(name="x"))


def many_parameters(graph: callboard.Graph) -> None:
    graph.node("a", lambda one, two: None)


@pytest.mark.parametrize(
    "make",
    [
        twice,
        two_agents,
        many_parameters,
        lambda graph: graph.node("a", 3),
        lambda graph: graph.node("a", {"type": "lm"}),
        lambda graph: graph.node("a", {"type": "llm", "prompt": 3}),
        lambda graph: graph.node("a", {"type": "llm"}),
        lambda graph: graph.node("a", lambda: None, timout=3),
        lambda graph: graph.node("a", lambda: None, timeout="3"),
        lambda graph: graph.edge("a"),
    ],
)
def test_a_mistake_is_told_where_it_is_made(make: Any) -> None:
    with pytest.raises(UsageError):
        make(callboard.Graph("g"))
