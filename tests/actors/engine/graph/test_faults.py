"""Whatever interrupts a graph, at whatever moment: it ends once, says so once, and leaves nothing behind."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.descendants import name_of
from support.fake_models import FakeModels, Reply

import callboard
from callboard.actors.engine.graph.compat import STANDARD
from callboard.actors.engine.graph.plan import GraphPlan, NodeJob, NodeResult, PlanStep
from callboard.actors.engine.graph.result import GraphResult
from callboard.actors.engine.graph.run import run_graph
from callboard.actors.work.context import RunContext
from callboard.protocol.events import TERMINAL
from callboard.protocol.graph import EndNode, ScriptNode
from callboard.protocol.kernel.questions import Question
from callboard.protocol.requests import Limits
from callboard.supervisors import Actor, Root
from callboard.supervisors.introspection import find

EVERYTHING = """
start: s
nodes:
  s: {type: script, script: s.sh, next: [a, b, m]}
  a: {type: llm, prompt: "{{x}}", state_updates: {a: "{{output}}"}, next: q}
  b: {type: agent, agent: kid, prompt: p, state_updates: {b: "{{output}}"}, next: q}
  m: {type: map, over: "{{items}}", as: item, branch: each, collect_into: out, max_concurrency: 2, next: q}
  each: {type: script, script: each.sh}
  q: {type: approval, question: "ok?", options: ["yes"], routes: {"yes": e}, on_other: e}
  e: {type: end, output: "{{a}} {{b}} {{out}}"}
"""
SCRIPTS = {"s": """echo '{"x": 1, "items": [1, 2, 3]}'""", "each": """echo '{"output": 0}'"""}
KID = """
start: s
nodes:
  s: {type: script, script: s.sh, next: i}
  i: {type: input, question: "what?", state_updates: {x: "{{input}}"}, next: e}
  e: {type: end, output: "{{x}}"}
"""


class Quick:
    """A front end that answers everything, each from a task of its own."""

    name = "quick"

    def __init__(self, root: callboard.Root, nursery: trio.Nursery) -> None:
        self._root = root
        self._nursery = nursery

    def asked(self, question: Question) -> None:
        self._nursery.start_soon(self._answer, question.id)

    def closed(self, question_id: str, by: str) -> None:
        pass

    async def _answer(self, question_id: str) -> None:
        self._root.questions.answer(question_id, "yes", by=self.name)


def everything(agent_runner: AgentRunner) -> None:
    agent_runner.agent(KID, name="kid", s="echo '{}'")
    agent_runner.agent(EVERYTHING, **SCRIPTS)


def leftovers(agent_runner: AgentRunner) -> Iterator[str]:
    """Whatever of a run is still there."""
    for question in agent_runner.root.questions.open:
        yield f"question {question.id}"
    for child in agent_runner.root.kernel.actor.children:
        if child.name.startswith("run-"):
            yield f"actor {child.path}"
    for process in psutil.Process().children(recursive=True):
        if name_of(process) in ("bash", "sh"):
            yield f"process {process.pid}"


MOMENTS = 75
"""More or less the number of events of the run above."""


@pytest.mark.parametrize("moment", [1, 2, 4, 7, 11, 16, 22, 28, 35, 43, 52, 60])
@pytest.mark.sample(4)
async def test_a_run_whose_caller_is_cancelled_at_any_moment_leaves_nothing(
    agent_runner: AgentRunner, moment: int
) -> None:
    everything(agent_runner)
    await _cancel_at(agent_runner, moment)


@pytest.mark.soak
@pytest.mark.parametrize("moment", range(1, MOMENTS))
async def test_a_run_whose_caller_is_cancelled_at_every_moment_leaves_nothing(
    agent_runner: AgentRunner, moment: int
) -> None:
    everything(agent_runner)
    await _cancel_at(agent_runner, moment)


async def _cancel_at(agent_runner: AgentRunner, moment: int) -> None:
    with trio.CancelScope() as scope:

        def watch(event: callboard.Event) -> None:
            if event.seq == moment:
                scope.cancel()

        async with trio.open_nursery() as nursery:
            with agent_runner.root.questions.attach(Quick(agent_runner.root, nursery)):
                await agent_runner.run(on_event=watch)
                pytest.fail("the run went on to its end")
    assert scope.cancelled_caught
    assert list(leftovers(agent_runner)) == []
    assert agent_runner.events[-1].kind == "run.cancelled"
    agent_runner.check_stream()


@pytest.mark.parametrize("moment", [1, 3, 6, 10, 15, 21, 27, 34, 42, 51, 61])
@pytest.mark.sample(4)
async def test_a_root_that_stops_at_any_moment_cancels_the_run_with_the_state_so_far(
    agent_runner: AgentRunner, moment: int
) -> None:
    everything(agent_runner)

    def watch(event: callboard.Event) -> None:
        if event.seq == moment:
            agent_runner.root.begin_stop()

    async with trio.open_nursery() as nursery:
        with agent_runner.root.questions.attach(Quick(agent_runner.root, nursery)):
            outcome = await agent_runner.run("hi", on_event=watch)
    assert outcome.status == "cancelled"
    assert outcome.exit_code == 130
    assert outcome.error is None
    stepped = any(event.kind == "state.patch" for event in agent_runner.events)
    assert outcome.state.get("x") == (1 if stepped else None)
    assert list(leftovers(agent_runner)) == []
    agent_runner.check_stream()


async def test_a_map_is_not_continued_while_the_root_stops(
    agent_runner: AgentRunner, caplog: pytest.LogCaptureFixture
) -> None:
    # An item's end starts the next item; that must not be tried in a root that admits nothing, at the very moment.
    agent_runner.agent(
        """
        start: m
        nodes:
          m: {type: map, over: "{{items}}", as: item, branch: b, collect_into: out, max_concurrency: 1, next: e}
          b: {type: llm, prompt: p}
          e: {type: end}
        """
    )

    def watch(event: callboard.Event) -> None:
        if event.kind == "node.exited" and event.data.node == "b":
            agent_runner.root.begin_stop()

    outcome = await agent_runner.run(state={"items": [1, 2, 3]}, on_event=watch)
    assert outcome.status == "cancelled"
    assert len(agent_runner.models.requests) == 1
    assert [event.kind for event in agent_runner.events if event.kind == "actor.failed"] == []
    assert caplog.records == []
    agent_runner.check_stream()


async def test_a_cancelled_run_removes_its_state_file_and_ends_its_script(
    agent_runner: AgentRunner, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "started")
    agent_runner.agent(
        "start: s\nnodes:\n  s: {type: script, script: s.sh, timeout: 600, next: e}\n  e: {type: end}",
        s=f"""sleep 600 & echo "$GRAPH_STATE_FILE $!" > {tmp_path}/started; wait""",
    )
    fifo = os.open(tmp_path / "started", os.O_RDWR | os.O_NONBLOCK)
    line = ""
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            nonlocal line
            await trio.lowlevel.wait_readable(fifo)
            line = os.read(fifo, 1000).decode()
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel)
        await agent_runner.run(state={"pad": "x" * 40_000})
    os.close(fifo)
    file, helper = line.split()
    assert not Path(file).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(helper), 0)


async def test_a_cancelled_llm_call_closes_its_connection(agent_runner: AgentRunner) -> None:
    agent_runner.agent("start: a\nnodes:\n  a: {type: llm, prompt: p, next: e}\n  e: {type: end}")
    agent_runner.models.script(Reply("never", hold=trio.Event()))
    async with trio.open_nursery() as nursery:

        async def cancel() -> None:
            await agent_runner.models.arrived(1)
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel)
        await agent_runner.run()
    await agent_runner.models.until(lambda server: server.cut == 1)


async def test_runs_of_one_root_do_not_disturb_each_other(agent_runner: AgentRunner) -> None:
    everything(agent_runner)
    agent_runner.agent(
        "start: s\nnodes:\n  s: {type: script, script: s.sh, on_error: fail, next: e}\n  e: {type: end}", "bad"
    )
    (agent_runner.config_dir / "agents" / "bad" / "s.sh").write_text("exit 1")
    outcomes: list[callboard.Outcome] = []

    async def one(target: str) -> None:
        outcomes.append(await callboard.run(target, root=agent_runner.root))

    async with trio.open_nursery() as nursery, trio.open_nursery() as answering:
        with agent_runner.root.questions.attach(Quick(agent_runner.root, answering)):
            async with trio.open_nursery() as runs:
                for target in ["g", "bad"] * 4:
                    runs.start_soon(one, target)
        nursery.cancel_scope.cancel()
    assert sorted(outcome.status for outcome in outcomes) == ["done"] * 4 + ["failed"] * 4
    assert {outcome.output for outcome in outcomes if outcome.status == "done"} == {"ok yes [0,0,0]"}


async def test_a_graph_that_timed_out_is_finished_after_its_nodes_and_counts_their_time(
    agent_runner: AgentRunner, mock_clock: trio.testing.MockClock
) -> None:
    agent_runner.agent(
        "settings: {timeout: 2}\nstart: a\nnodes:\n  a: {type: llm, prompt: p, next: e}\n  e: {type: end}"
    )
    agent_runner.models.script(Reply("never", hold=trio.Event()))
    async with trio.open_nursery() as nursery:

        async def pass_the_time() -> None:
            await agent_runner.models.arrived(1)
            mock_clock.jump(2)

        nursery.start_soon(pass_the_time)
        outcome = await agent_runner.run()
    assert outcome.exit_code == 4
    (finished,) = [event for event in agent_runner.events if event.kind == "graph.finished"]
    (stopped,) = [
        event for event in agent_runner.events if event.kind == "actor.stopped" and event.actor.endswith("/g/a")
    ]
    assert stopped.seq < finished.seq
    assert finished.data.timing == {"a": (1, 2.0, 2.0)}


@pytest.mark.parametrize(
    ("keys", "output"),
    [
        ("fallback: f, next: e", "fell back"),
        ("on_error: continue, next: e", ""),
        ("on_error: collect, next: e", ""),
        ("next: e", None),
    ],
)
async def test_a_node_that_is_cancelled_from_outside_goes_where_a_failed_one_goes(
    agent_runner: AgentRunner, keys: str, output: str | None
) -> None:
    agent_runner.agent(
        f"start: a\nnodes:\n  a: {{type: script, script: s.sh, timeout: 600, {keys}}}\n"
        '  f: {type: script, script: f.sh, next: e}\n  e: {type: end, output: "{{said}}"}',
        s="sleep 600",
        f="""echo '{"said": "fell back"}'""",
    )

    def cancel(event: callboard.Event) -> None:
        if event.kind == "actor.spawned" and event.actor.endswith("/g/a/s.sh"):
            actor = find(agent_runner.root.kernel, event.actor.removesuffix("/s.sh"))
            assert actor is not None
            actor.interrupt()

    with agent_runner.root.bus.listen(cancel):
        outcome = await agent_runner.run()
    (left,) = [event for event in agent_runner.events if event.kind == "node.exited" and event.data.node == "a"] or [
        None
    ]
    assert left is not None
    assert left.actor.endswith("/g/a")
    assert left.data.error == "it was cancelled"
    if output is None:
        assert outcome.error is not None
        assert (outcome.error.message, outcome.error.node) == ("it was cancelled", "a")
    else:
        assert (outcome.status, outcome.output) == ("done", output)


async def test_a_cancelled_run_with_a_root_of_its_own_takes_that_along(fake_model: FakeModels, tmp_path: Path) -> None:
    config_dir = fake_model.config_dir(tmp_path / "config")
    home = config_dir / "agents" / "g"
    AgentRunner(config_dir, fake_model, callboard.Root(config_dir=config_dir)).agent(
        "start: s\nnodes:\n  s: {type: script, script: s.sh, timeout: 600, next: e}\n  e: {type: end}",
        s=f"echo $$ > {tmp_path}/pid; sleep 600",
    )

    def watch(event: callboard.Event) -> None:
        if event.kind == "tool.call.started":
            nursery.start_soon(cancel)

    async def cancel() -> None:
        while not (tmp_path / "pid").exists():
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()

    before = set(psutil.Process().children())  # orphans of other tests, which this process has adopted
    async with trio.open_nursery() as nursery:
        await callboard.run(home, on_event=watch, config_dir=config_dir)
    assert [each for each in psutil.Process().children() if name_of(each) == "bash" and each not in before] == []


# --- 8 branches ask at once ----------------------------------------------------------------------------------

ASKERS = "abcdefgh"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.sample(3)
async def test_branches_that_ask_at_once_are_answered_in_any_order_while_the_others_run(
    agent_runner: AgentRunner, seed: int
) -> None:
    nodes = "".join(
        f"  {id}: {{type: agent, agent: kid, prompt: {id}, state_updates: {{{id}: '{{{{output}}}}'}}, next: end}}\n"
        for id in ASKERS
    )
    agent_runner.agent(
        "start: s\nnodes:\n"
        f"  s: {{type: script, script: s.sh, next: [{', '.join(ASKERS)}]}}\n{nodes}"
        "  end: {type: end, output: '" + "".join(f"{{{{{id}}}}}" for id in ASKERS) + "'}",
        s="echo '{}'",
    )
    agent_runner.agent(
        """
        start: i
        nodes:
          i: {type: input, question: "{{initial_prompt}}?", state_updates: {x: "{{input}}"}, next: l}
          l: {type: llm, prompt: "{{x}}", state_updates: {x: "{{output}}"}, next: e}
          e: {type: end, output: "{{x}}"}
        """,
        name="kid",
    )
    agent_runner.models.answer_with(lambda request: request.prompt.upper())
    chance = random.Random(seed)
    all_ask = trio.Event()
    asked: list[Question] = []

    class Answerer:
        name = "answerer"

        def asked(self, question: Question) -> None:
            asked.append(question)
            if len(asked) == len(ASKERS):
                all_ask.set()

        def closed(self, question_id: str, by: str) -> None:
            pass

    async def answer_in_some_order() -> None:
        await all_ask.wait()
        chance.shuffle(asked)
        for number, question in enumerate(asked, 1):
            agent_runner.root.questions.answer(question.id, question.text[0], by="desk")
            # The one that was answered runs on to its model while the others still wait.
            await agent_runner.models.arrived(number)
            assert len(agent_runner.root.questions.open) == len(ASKERS) - number

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_in_some_order)
        with agent_runner.root.questions.attach(Answerer()):
            outcome = await agent_runner.run()
    assert outcome.output == ASKERS.upper()
    assert all(time.visits == 1 for time in outcome.nodes.values())
    assert sorted(outcome.order) == sorted(["s", "end", *ASKERS])
    entered = [event.actor for event in agent_runner.events if event.kind == "node.entered"]
    assert len(entered) == len(set(entered))


async def test_wrong_and_late_answers_change_nothing(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        'start: i\nnodes:\n  i: {type: input, question: q, state_updates: {x: "{{input}}"}, next: e}\n'
        '  e: {type: end, output: "{{x}}"}'
    )
    results: list[bool] = []

    class Twice:
        name = "twice"

        def asked(self, question: Question) -> None:
            desk = agent_runner.root.questions
            for id, value in [("q0", "wrong"), (question.id, "first"), (question.id, "second")]:
                results.append(desk.answer(id, value, by=self.name))

        def closed(self, question_id: str, by: str) -> None:
            pass

    with agent_runner.root.questions.attach(Twice()):
        assert (await agent_runner.run()).output == "first"
    assert results == [False, True, False]


# --- plans made by hand --------------------------------------------------------------------------------------


def plan(work: object, **options: object) -> GraphPlan:
    node = ScriptNode(id="n", script="x", state_updates={"k": "{{output}}"})
    end = EndNode(id="e", output="{{k}}")
    step = PlanStep(id="n", kind="script", work=work, node=node, next=("e",), updates=node.state_updates, **options)
    return GraphPlan(
        name="p",
        start="n",
        steps={"n": step, "e": PlanStep(id="e", kind="end", work=None, node=end, output=end.output)},
        directory=Path(),
        compat=STANDARD,
    )


async def perform(made: GraphPlan) -> GraphResult:
    async def run_agent(*_: object) -> str:
        raise AssertionError("no agents here")

    context = RunContext(gateway=None, limits=Limits(), config_dir=Path(), environ={}, run_agent=run_agent)
    async with Root() as root:
        return await root.spawn(run_graph, made, "hi", context).result()


async def test_any_async_function_can_be_a_nodes_work() -> None:
    async def work(me: Actor, job: NodeJob) -> NodeResult:
        return NodeResult(output=str(job.state["initial_prompt"]).upper(), scope="output")

    assert (await perform(plan(work))).output == "HI"


async def test_a_bug_in_a_nodes_code_costs_that_node_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def work(me: Actor, job: NodeJob) -> NodeResult:
        raise ZeroDivisionError("oops")

    result = await perform(plan(work))
    assert result.error is not None
    assert str(result.error) == "at node 'n': ZeroDivisionError: oops"
    assert "node 'n' crashed" in caplog.text
    assert (await perform(plan(work, tolerant=True))).output == "ZeroDivisionError: oops"


async def test_a_node_that_is_cancelled_from_outside_is_named() -> None:
    async def work(me: Actor, job: NodeJob) -> NodeResult:
        me.ref.cancel()
        await trio.sleep_forever()
        raise AssertionError

    result = await perform(plan(work))
    assert str(result.error) == "at node 'n': it was cancelled"


def test_exactly_three_kinds_of_events_end_a_run() -> None:
    assert set(TERMINAL) == {"run.finished", "run.failed", "run.cancelled"}
