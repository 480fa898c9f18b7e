"""A workflow on the kernel: what the machine hands out is done by actors, and comes to the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from support.messages import has_message
from support.workflow_driver import KNOWN, WorkflowDriver
from support.workflow_run import Naps, WorkflowRunner, chained, fanned_out, mapped, written
from trio.testing import MockClock

from callboard.actors.engine.workflow import decider, run
from callboard.actors.engine.workflow.job import Job
from callboard.actors.engine.workflow.nodes import custom
from callboard.actors.engine.workflow.run import WorkflowResult
from callboard.protocol.errors import GraphMistake, NobodyToAsk, NodeFailed
from callboard.protocol.workflow import Known
from callboard.protocol.workflow.model import AgentConfig
from callboard.supervisors.introspection import find

RECORDED = Path(__file__).parents[3] / "fixtures" / "workflows" / "devall.json"
CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in json.loads(RECORDED.read_text()) if case["expected"]["error"] is None
}


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> WorkflowDriver:
    """Agents are played by the stage's stub provider."""
    workflow_driver = WorkflowDriver()

    async def run_stub(me: Any, job: Job) -> Any:
        assert isinstance(job.node.config, AgentConfig)
        machine = type("B", (), {"structure": type("S", (), {"graph": workflow_driver.graph})})
        return workflow_driver._agent(machine, job.firing, job.node.config, job.unit)

    monkeypatch.setitem(run.CODE, AgentConfig, run_stub)
    monkeypatch.setattr(run, "GraphResources", Nothing)
    return workflow_driver


class Nothing:
    """What such agents share."""

    def __init__(self, *_: Any) -> None:
        self.memories = self

    async def choose_paths(self, _: Any) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("name", CASES)
async def test_a_recorded_run_is_repeated_by_actors(
    name: str, workflow_runner: WorkflowRunner, stub: WorkflowDriver
) -> None:
    case, expected = CASES[name], CASES[name]["expected"]
    plan = written(workflow_runner.directory, case["yaml"], "devall", KNOWN)
    stub.graph = plan.workflow.graph
    result = await workflow_runner.run(plan, case["task_prompt"], answers=case["human_answers"])
    assert result.error is None
    assert result.output == expected["final"]
    assert [[m.role, m.text] for m in result.final_messages][: len(expected["final_messages"])] == expected[
        "final_messages"
    ]
    assert sorted(result.leftover) == sorted(expected["leftover"])
    if case["stable_over_3_runs"]:
        assert result.order[: len(expected["order"])] == expected["order"]


# --- events, paths, time ----------------------------------------------------------------------------------

CHAIN = """
    graph:
      start: [A]
      nodes:
        - {id: A, type: literal, config: {content: hello}}
        - {id: B, type: nap, config: {seconds: 2}}
        - {id: C, type: passthrough, config: {}}
      edges: [{from: A, to: B}, {from: B, to: C}]
"""


async def test_a_node_that_is_done_at_once_is_told_like_any_other(
    autojump_clock: MockClock, workflow_runner: WorkflowRunner, naps: Naps
) -> None:
    result = await workflow_runner.run(written(workflow_runner.directory, CHAIN, known=naps.known))
    told = [(event.actor, event.data.node) for event in workflow_runner.events if event.kind == "node.entered"]
    assert told == [("/run-1", "A"), ("/run-1/B", "B"), ("/run-1", "C")]
    assert [(data.node, data.next) for data in workflow_runner.of("node.exited")] == [
        ("A", ["B"]),
        ("B", ["C"]),
        ("C", []),
    ]
    assert workflow_runner.of("graph.finished")[0].timing["B"][1] == 2.0
    assert result.nodes["B"].seconds == 2.0
    assert result.output == "B napped"


async def test_a_node_that_comes_again_is_another_actor(workflow_runner: WorkflowRunner) -> None:
    plan = written(
        workflow_runner.directory,
        """
        graph:
          start: [H]
          nodes:
            - {id: H, type: human, config: {}}
            - {id: End, type: passthrough, config: {}}
          edges:
            - {from: H, to: H, condition: {type: keyword, config: {none: [stop]}}}
            - {from: H, to: End, condition: {type: keyword, config: {any: [stop]}}}
        """,
    )
    await workflow_runner.run(plan, answers=["more", "more", "stop"])
    asked = [event.actor for event in workflow_runner.events if event.kind == "question.asked"]
    assert asked == ["/run-1/H", "/run-1/H#2", "/run-1/H#3"]


async def test_cycles_of_one_layer_go_round_each_at_its_own_pace(
    autojump_clock: MockClock, workflow_runner: WorkflowRunner, naps: Naps
) -> None:
    plan = written(
        workflow_runner.directory,
        """
        graph:
          start: [Quick, Slow]
          end: [Slow]
          max_iterations: 3
          nodes:
            - {id: Quick, type: nap, config: {seconds: 1}}
            - {id: Slow, type: nap, config: {seconds: 10}}
          edges: [{from: Quick, to: Quick}, {from: Slow, to: Slow}]
        """,
        "devall",
        naps.known,
    )
    await workflow_runner.run(plan)
    assert sorted(naps.begun[:2]) == [("Quick", 0), ("Slow", 0)]
    assert naps.begun[2:] == [("Quick", 1), ("Quick", 2), ("Slow", 10), ("Slow", 20)]


async def test_units_of_a_map_run_as_many_at_once_as_the_edge_says(
    autojump_clock: MockClock, workflow_runner: WorkflowRunner, naps: Naps
) -> None:
    began = trio.current_time()
    result = await workflow_runner.run(mapped(workflow_runner.directory, units=500, at_once=100, seconds=1))
    assert trio.current_time() - began == pytest.approx(5.0)
    assert result.order == ["S", "M"]
    assert len(result.outputs["M"]) == 500
    assert {data.item for data in workflow_runner.of("node.exited") if data.item is not None} == set(range(500))
    assert result.nodes["M"].visits == 1


# --- people -----------------------------------------------------------------------------------------------


async def test_people_are_asked_in_the_order_of_the_file(workflow_runner: WorkflowRunner) -> None:
    ids = [f"H{i}" for i in range(20)]
    nodes = "\n".join(f"        - {{id: {id}, type: human, config: {{}}}}" for id in ids)
    plan = written(
        workflow_runner.directory,
        f"\n    graph:\n      start: [{', '.join(ids)}]\n      end: [H0]\n      nodes:\n{nodes}\n",
    )
    result = await workflow_runner.run(plan, answers=ids)
    assert {id: said[0].text for id, said in result.outputs.items()} == {id: id for id in ids}


NESTED = """
    graph:
      start: [A]
      nodes:
        - {id: A, type: literal, config: {content: hello}}
        - id: Team
          type: subgraph
          config:
            type: config
            config:
              id: team
              start: [In]
              nodes:
                - {id: In, type: passthrough, config: {}}
                - {id: Boss, type: human, config: {description: "What now?"}}
              edges: [{from: In, to: Boss}]
      edges: [{from: A, to: Team}]
"""


async def test_a_question_from_a_subgraph_reaches_the_root(workflow_runner: WorkflowRunner) -> None:
    clerk = workflow_runner.clerk()
    ref = workflow_runner.start(written(workflow_runner.directory, NESTED))
    question = await clerk.next()
    assert (question.actor, question.node) == ("/run-1/Team/Boss", "Boss")
    assert question.text == "What now?\n\n=== INPUT FROM In (user) ===\n\nhello"
    workflow_runner.root.questions.answer(question.id, "go", by="test")
    result = (await ref.wait()).value
    assert result.output == "go"
    assert result.order == ["A", "Team", "In", "Boss"]
    assert {id: said[0].text for id, said in result.outputs.items()} == {
        "A": "hello",
        "Team": "go",
        "Team/In": "hello",
        "Team/Boss": "go",
    }


async def test_a_cancelled_run_leaves_nobody_in_its_subgraphs_and_keeps_what_was_said(
    workflow_runner: WorkflowRunner,
) -> None:
    clerk = workflow_runner.clerk()
    ref = workflow_runner.start(written(workflow_runner.directory, NESTED))
    await clerk.next()
    ref.cancel()
    assert (await ref.wait()).reason == "cancelled"
    assert workflow_runner.root.actor.child_count == 0
    assert {id: said[0].text for id, said in workflow_runner.result.outputs.items()} == {
        "A": "hello",
        "Team/In": "hello",
    }
    assert workflow_runner.result.order == ["A", "Team", "In", "Boss"]
    assert not clerk.open


async def test_a_run_whose_person_is_not_there_fails_and_says_where(workflow_runner: WorkflowRunner) -> None:
    result = await workflow_runner.run(written(workflow_runner.directory, NESTED))
    assert isinstance(result.error, NobodyToAsk)
    assert result.error.node == "Boss"
    assert result.outputs["A"][0].text == "hello"


# --- failures ---------------------------------------------------------------------------------------------


async def test_a_failing_node_lets_its_layer_finish_and_ends_the_run(
    autojump_clock: MockClock, workflow_runner: WorkflowRunner, naps: Naps
) -> None:
    plan = written(
        workflow_runner.directory,
        """
        graph:
          start: [Bad, Good]
          end: [Good]
          nodes:
            - {id: Bad, type: nap, config: {fails: "no bed"}}
            - {id: Good, type: nap, config: {seconds: 1}}
            - {id: After, type: nap, config: {}}
          edges: [{from: Good, to: After}]
        """,
        known=naps.known,
    )
    result = await workflow_runner.run(plan)
    assert str(result.error) == "no bed"
    assert result.error is not None
    assert result.error.node == "Bad"
    assert result.order == ["Bad", "Good"]
    assert result.output == "Good napped"
    assert workflow_runner.of("node.exited")[0].error == "no bed"


async def test_a_failure_that_is_tolerated_is_what_the_node_says(workflow_runner: WorkflowRunner, naps: Naps) -> None:
    text = CHAIN.replace("type: nap, config: {seconds: 2}", "type: nap, on_error: continue, config: {fails: no bed}")
    result = await workflow_runner.run(written(workflow_runner.directory, text, known=naps.known))
    assert result.error is None
    assert result.output.startswith("'B' failed: no bed")


async def test_a_bug_in_a_nodes_code_costs_the_node_and_says_so(workflow_runner: WorkflowRunner, naps: Naps) -> None:
    text = CHAIN.replace("{seconds: 2}", "{seconds: soon}")
    result = await workflow_runner.run(written(workflow_runner.directory, text, known=naps.known))
    assert isinstance(result.error, NodeFailed)
    assert "TypeError" in str(result.error)


async def test_what_the_author_should_know_is_a_warning_of_the_run(workflow_runner: WorkflowRunner, naps: Naps) -> None:
    text = """
        graph:
          start: [A]
          end: [A]
          max_iterations: 2
          nodes: [{id: A, type: literal, config: {content: x}}]
          edges: [{from: A, to: A}]
    """
    await workflow_runner.run(written(workflow_runner.directory, text, "devall"))
    assert [data.code for data in workflow_runner.of("run.warning")] == ["max_iterations"]


TWO = """
    graph:
      start: [A]
      end: %s
      nodes:
        - {id: A, type: literal, config: {content: x}}
        - {id: B, type: %s}
      edges: [{from: A, to: B, %s}]
"""
PASS, COUNT = "passthrough, config: {}", "loop_counter, config: {max_iterations: 3}"
NEVER = "condition: {type: keyword, config: {any: [NOPE]}}"
DROP = "process: {type: regex_extract, config: {pattern: zzz, on_no_match: drop}}"


@pytest.mark.parametrize(
    ("end", "node", "edge", "codes"),
    [
        ("[B]", PASS, NEVER, ["no_result"]),
        ("[]", PASS, NEVER, ["no_result"]),
        ("[B]", PASS, DROP, ["no_result"]),
        ("[A, B]", PASS, NEVER, []),
        ("[B]", PASS, "trigger: true", []),
        ("[B]", COUNT, "trigger: true", []),
    ],
)
async def test_a_run_that_does_not_reach_its_end_warns_that_its_output_is_empty(
    workflow_runner: WorkflowRunner, end: str, node: str, edge: str, codes: list[str]
) -> None:
    result = await workflow_runner.run(written(workflow_runner.directory, TWO % (end, node, edge)))
    warnings = workflow_runner.of("run.warning")
    assert (result.error, [data.code for data in warnings]) == (None, codes)
    assert all("from 'A' to 'B'" in data.message for data in warnings)


# --- cancelled from outside ---------------------------------------------------------------------------------


def with_a_person(edge: str = "", on_error: str = "continue") -> str:
    return f"""
        graph:
          start: [A]
          nodes:
            - {{id: A, type: human, on_error: {on_error}, config: {{}}}}
            - {{id: Z, type: passthrough, config: {{}}}}
          edges: [{{from: A, to: Z{edge}}}]
    """


async def cancelled(workflow_runner: WorkflowRunner, yaml: str, path: str = "/run-1/A") -> WorkflowResult:
    """How a run ends if the actor of a node that waits for a person is cancelled."""
    clerk = workflow_runner.clerk()
    ref = workflow_runner.start(written(workflow_runner.directory, yaml))
    await clerk.next()
    actor = find(workflow_runner.root, path)
    assert actor is not None
    actor.interrupt()
    result: WorkflowResult = (await ref.wait()).value
    assert not clerk.open
    return result


@pytest.mark.parametrize("edge", ["", ", condition: {type: regex, config: {pattern: cancelled}}"])
async def test_a_node_that_is_cancelled_goes_on_with_that_if_its_errors_are_tolerated(
    workflow_runner: WorkflowRunner, edge: str
) -> None:
    result = await cancelled(workflow_runner, with_a_person(edge))
    assert result.error is None
    assert result.order == ["A", "Z"]
    assert result.output.startswith("'A' failed: it was cancelled")
    told = [(event.kind, event.actor) for event in workflow_runner.events if getattr(event.data, "node", "") == "A"]
    assert [each for each in told if each[0].startswith("node.")] == [
        ("node.entered", "/run-1/A"),
        ("node.exited", "/run-1/A"),
    ]
    assert workflow_runner.of("node.exited")[0].next == ["Z"]
    assert result.nodes["A"].visits == 1


async def test_a_node_that_is_cancelled_fails_the_run_otherwise(workflow_runner: WorkflowRunner) -> None:
    result = await cancelled(workflow_runner, with_a_person(on_error="fail"))
    assert str(result.error) == "it was cancelled"
    assert result.error is not None
    assert result.error.node == "A"
    assert result.order == ["A"]
    assert [(data.node, data.error) for data in workflow_runner.of("node.exited")] == [("A", "it was cancelled")]


async def test_a_unit_that_is_cancelled_fails_its_node_and_what_the_others_said_is_kept(
    workflow_runner: WorkflowRunner,
) -> None:
    clerk = workflow_runner.clerk()
    yaml = """
        graph:
          start: [S]
          nodes:
            - {id: S, type: literal, config: {content: "a\\nb"}}
            - {id: H, type: human, config: {}}
          edges: [{from: S, to: H, dynamic: {type: map, config: {split_type: lines}}}]
    """
    ref = workflow_runner.start(written(workflow_runner.directory, yaml))
    first, second = sorted([await clerk.next(), await clerk.next()], key=lambda question: question.actor)
    workflow_runner.root.questions.answer(first.id, "yes", by="test")
    actor = find(workflow_runner.root, second.actor)
    assert actor is not None
    actor.interrupt()
    result: WorkflowResult = (await ref.wait()).value
    assert str(result.error) == "unit 1: it was cancelled"
    assert [message.text for message in result.outputs["H"]] == ["yes"]


# --- node types of plugins --------------------------------------------------------------------------------


async def test_a_plugin_that_gives_something_else_back_is_told_what_is_wanted(
    workflow_runner: WorkflowRunner, naps: Naps
) -> None:
    text = CHAIN.replace("{seconds: 2}", "{gives: 5}")
    result = await workflow_runner.run(written(workflow_runner.directory, text, known=naps.known))
    assert has_message(str(result.error), "engine.workflow.nodes.custom._run_custom", said=5)


SIESTA = """
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.machine.perform import Said


async def siesta(me, job):
    assert job.context.meter is not None
    return Said(outputs=(Message(role="assistant", content=f"{job.values['hours']} h after {job.inputs[0].text}"),))
"""


async def test_a_package_brings_a_type_of_nodes_by_an_entry_point(
    workflow_runner: WorkflowRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "callboard_siesta-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: callboard-siesta\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{custom.GROUP}]\nsiesta = callboard_siesta:siesta\n")
    (tmp_path / "callboard_siesta.py").write_text(SIESTA)
    monkeypatch.syspath_prepend(str(tmp_path))
    custom.node_types.cache_clear()
    try:
        known = Known(node_types=frozenset(custom.node_types()))
        text = CHAIN.replace("type: nap, config: {seconds: 2}", "type: siesta, config: {hours: 3}")
        assert (
            await workflow_runner.run(written(workflow_runner.directory, text, known=known))
        ).output == "3 h after hello"
    finally:
        custom.node_types.cache_clear()


async def test_a_node_of_a_type_that_nobody_brings_is_a_mistake_of_the_graph(workflow_runner: WorkflowRunner) -> None:
    text = CHAIN.replace("nap", "siesta")
    result = await workflow_runner.run(
        written(workflow_runner.directory, text, known=Known(node_types=frozenset({"siesta"})))
    )
    assert isinstance(result.error, GraphMistake)
    assert has_message(str(result.error), "engine.workflow.nodes.custom._code", type="siesta")


# --- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [3_000, pytest.param(10_000, marks=pytest.mark.soak)])  # Python recurses to 1,000
@pytest.mark.parametrize("kind", ["passthrough", "nap"])
@pytest.mark.sample(1)
async def test_thousands_of_nodes_in_a_row(kind: str, length: int, workflow_runner: WorkflowRunner, naps: Naps) -> None:
    plan = chained(workflow_runner.directory, length, kind)
    result = await workflow_runner.run(plan)
    assert result.error is None
    assert result.order == [f"N{i}" for i in range(length)]


async def test_nodes_that_are_done_at_once_let_others_have_their_turn(workflow_runner: WorkflowRunner) -> None:
    ref = workflow_runner.start(chained(workflow_runner.directory, 20 * decider.TURN, "passthrough"))
    turns = 0
    while ref.alive:
        await trio.lowlevel.checkpoint()
        turns += 1
    assert turns >= 20


@pytest.mark.parametrize("kind", ["passthrough", "nap"])
async def test_a_thousand_nodes_at_once(kind: str, workflow_runner: WorkflowRunner, naps: Naps) -> None:
    plan = fanned_out(workflow_runner.directory, 1_000, kind)
    result = await workflow_runner.run(plan)
    assert result.error is None
    assert len(result.order) == 1_002
    assert len(result.outputs["End"]) == 1


async def test_a_hundred_runs_wait_for_people_and_all_are_asked(workflow_runner: WorkflowRunner) -> None:
    clerk = workflow_runner.clerk()
    plan = written(workflow_runner.directory, NESTED)
    refs = [workflow_runner.start(plan, name=f"run-{i}") for i in range(100)]
    questions = [await clerk.next() for _ in refs]
    for question in reversed(questions):
        workflow_runner.root.questions.answer(question.id, f"to {question.run}", by="test")
    results = [(await ref.wait()).value for ref in refs]
    assert [result.output for result in results] == [f"to run-{i}" for i in range(100)]


@pytest.mark.parametrize(("level", "summed", "warned"), [("INFO", 1, 1), ("WARNING", 0, 1), ("ERROR", 0, 0)])
async def test_log_level_leaves_out_what_is_below_it(
    workflow_runner: WorkflowRunner, caplog: pytest.LogCaptureFixture, level: str, summed: int, warned: int
) -> None:
    looping = f"""
    graph:
      log_level: {level}
      max_iterations: 2
      start: [A]
      end: [B]
      nodes: [{{id: A, type: literal, config: {{content: a}}}}, {{id: B, type: literal, config: {{content: b}}}}]
      edges: [{{from: A, to: B}}, {{from: B, to: A}}]
    """
    caplog.set_level("INFO", "callboard.graph")
    await workflow_runner.run(written(workflow_runner.directory, looping, "devall"))
    assert caplog.text.count("performance summary") == summed
    assert len(workflow_runner.of("run.warning")) == warned
