"""Replays of workflows: what code, functions and memories came to is in the rows, and none of it is done again."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels, Reply

import callboard
from callboard.actors.engine.workflow.job import Job
from callboard.actors.engine.workflow.machine.perform import Said
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.nodes import custom
from callboard.protocol.chat import ChatRequest, UserTurn
from callboard.protocol.events import Event
from callboard.protocol.kernel.questions import Question
from callboard.supervisors import Actor

sys.path.insert(0, str(Path(__file__).parents[1] / "durable"))
sys.path.insert(0, str(Path(__file__).parent))

from flow import ANSWERS, KilledWorkflow
from in_process import again, again_in_any_order
from playing import Person
from test_replay import by_actor
from whole import KilledWholeRun

PROCESSES = (".py", "edge-functions", "make_file", "call_user")
"""What programs are called that a replay does not start."""


@pytest.fixture
def killed_workflow(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KilledWorkflow]:
    """Runs whose replays must leave nothing in the temporary directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOST", "0")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield KilledWorkflow(tmp_path, fake_model)
    assert list(temporary.glob("*/*")) == []


async def begin(
    killed_workflow: KilledWorkflow, hears: Callable[[Event], None] = lambda _: None, flow: str = ""
) -> callboard.Outcome:
    """A run to its end; of another workflow nobody is there to be asked."""
    if flow:
        killed_workflow.flow.write_text(flow)
    async with callboard.Root(config_dir=killed_workflow.config) as root:
        person = Person(root, str(killed_workflow.log), ANSWERS)
        with contextlib.nullcontext() if flow else root.questions.attach(person):
            return await callboard.run(
                killed_workflow.flow,
                "hello",
                durable=True,
                id="run-1",
                yes=True,
                attach=[killed_workflow.note],
                on_event=hears,
            )


def told_of(events: list[Event]) -> dict[str, list[Any]]:
    """What happened to each actor, without what tells of programs."""
    return {
        actor: [(kind, data) for kind, data in told if not str(data.get("tool", "")).endswith(PROCESSES)]
        for actor, told in by_actor(events).items()
        if not actor.endswith(PROCESSES)
    }


async def test_output_and_events_are_those_of_the_run_and_nothing_is_sent_started_or_written(
    killed_workflow: KilledWorkflow,
) -> None:
    events: list[Event] = []
    outcome = await begin(killed_workflow, events.append)
    assert outcome.status == "done"
    effects, requests = killed_workflow.effects, killed_workflow.requests
    directories = killed_workflow.directories()
    replayed, found = await again(killed_workflow)
    assert replayed.differences == ()
    assert not replayed.ended_early
    assert json.dumps(replayed.outcome.to_wire()) == json.dumps(outcome.to_wire())
    assert told_of(found) == told_of(events)
    assert (killed_workflow.effects, killed_workflow.requests, killed_workflow.directories()) == (
        effects,
        requests,
        directories,
    )


async def test_it_is_the_same_byte_for_byte_in_whatever_order_trio_runs_its_tasks(
    killed_workflow: KilledWorkflow,
) -> None:
    await begin(killed_workflow)
    await again_in_any_order(killed_workflow)


@pytest.mark.parametrize("kill", [30, 90, *(pytest.param(row, marks=pytest.mark.soak) for row in range(3, 95, 4))])
async def test_of_a_workflow_that_was_killed_it_goes_as_far_as_the_rows_do_and_after_resume_to_the_end(
    killed_workflow: KilledWorkflow, kill: int
) -> None:
    assert await killed_workflow.play(kill=kill) is None
    left = killed_workflow.directories()
    replayed, _ = await again(killed_workflow)
    assert (replayed.ended_early, replayed.differences, replayed.outcome.status) == (True, (), "cancelled")
    assert killed_workflow.directories() == left
    said = await killed_workflow.play(resume=True)
    assert said is not None
    replayed, _ = await again(killed_workflow)
    assert (replayed.ended_early, replayed.differences) == (False, ())
    assert json.dumps(replayed.outcome.to_wire()["output"]) == json.dumps(said["output"])


NO_SERVER = "tooling: [{type: mcp_remote, config: {server: 'http://127.0.0.1:9/mcp'}}]"
"""Tools of a server that can't be reached."""

SMALL = """
graph:
  id: small
  start: [A]
  memory: [{name: board, type: blackboard, config: {memory_path: board.json}}]
  nodes:
    - {id: A, type: python, config: {code: 'print("a")'}}
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "nodes",
    [
        "    - {id: B, type: python, config: {code: 'import sys; print(1); sys.exit(4)'}}\n",
        "    - {id: B, type: python, config: {code: 'import time; time.sleep(60)', timeout_seconds: 1}}\n",
        "    - {id: B, type: python, config: {interpreter: /nowhere/python, code: 'x'}}\n",
        "    - {id: B, type: python, config: {encoding: hex, code: 'x'}}\n",
        "    - {id: B, type: python, on_error: continue, config: {encoding: hex, code: 'x'}}\n",
        "    - {id: B, type: agent, config: {provider: fake, name: m, role: FAILS}}\n",
        "    - {id: B, type: agent, on_error: continue, config: {provider: fake, name: m, role: FAILS}}\n",
        "    - {id: B, type: agent, config: {provider: fake, name: m, memories: [{name: board}]}}\n",
        "    - {id: B, type: agent, on_error: continue, config: {provider: fake, name: m, role: OK, TOOLING}}\n",
        "    - {id: B, type: agent, config: {provider: fake, name: m, role: OK, TOOLING}}\n",
        "    - {id: B, type: human, config: {description: 'Nobody?'}}\n",
        "    - {id: B, type: human, on_error: continue, config: {description: 'Nobody?'}}\n",
        "    - {id: B, type: loop_timer, config: {max_duration: 0.001, message: over}}\n",
    ],
)
async def test_what_fails_or_takes_too_long_does_so_again(killed_workflow: KilledWorkflow, nodes: str) -> None:
    killed_workflow._models.answer_with(
        lambda request: Reply(status=400, error="no") if request.system == "FAILS" else Reply(text="ok")
    )
    flow = SMALL + nodes.replace("TOOLING", NO_SERVER) + "    - {id: C, type: python, config: {code: 'print(3)'}}\n"
    flow += "  edges: [{from: A, to: B}, {from: B, to: C}]\n"
    events: list[Event] = []
    outcome = await begin(killed_workflow, events.append, flow)
    replayed, found = await again(killed_workflow)
    assert replayed.differences == ()
    assert json.dumps(replayed.outcome.to_wire()) == json.dumps(outcome.to_wire())
    assert told_of(found) == told_of(events)


@pytest.mark.parametrize("kill", [25, 75, *(pytest.param(row, marks=pytest.mark.soak) for row in range(1, 95, 8))])
async def test_a_fork_of_a_workflow_is_replayed_as_any_run(killed_workflow: KilledWorkflow, kill: int) -> None:
    assert await killed_workflow.play(kill=kill) is None
    async with callboard.Root(config_dir=killed_workflow.config) as root:
        with root.questions.attach(Person(root, str(killed_workflow.log), ANSWERS)):
            outcome = await callboard.fork("run-1", at=kill, id="run-2", root=root)
    assert outcome.status == "done"
    replayed, _ = await again(killed_workflow, "run-2")
    assert (replayed.differences, replayed.outcome.output) == ((), outcome.output)


class Plugin:
    """A type of nodes that another package brings: it asks a model and a person."""

    ran = 0

    def load(self) -> Any:
        async def run(me: Actor, job: Job) -> Said:
            Plugin.ran += 1
            reply = await job.context.chat(me, ChatRequest(model="fake:m", messages=(UserTurn("plug"),)))
            answer = await me.ask_person(Question(id="", actor="", node=job.node.id, kind="text", text="Sure?"))
            return Said(outputs=(Message(role="assistant", content=f"{reply.text} {answer.text} {job.values['x']}"),))

        return run


PLUGGED = """
graph:
  start: [A]
  nodes:
    - {id: A, type: plugin, config: {x: 1}}
    - {id: B, type: plugin, config: {x: 2}}
    - {id: C, type: python, config: {code: 'print(3)'}}
  edges:
    - {from: A, to: B, process: {type: function, config: {name: numbered}}}
    - {from: B, to: C}
"""


async def test_nodes_of_types_of_others_are_not_run_again(
    killed_workflow: KilledWorkflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    Plugin.ran = 0
    monkeypatch.setattr(custom, "node_types", lambda: {"plugin": Plugin()})
    monkeypatch.setattr("callboard.actors.runs.devall_loader.node_types", lambda: {"plugin": Plugin()})
    killed_workflow.flow.write_text(PLUGGED)
    killed_workflow._models.answer_with(lambda _: Reply(text="model"))
    cassette, events = killed_workflow.note.with_name("one.jsonl"), list[Event]()
    async with callboard.Root(config_dir=killed_workflow.config) as root:
        with root.questions.attach(Person(root, str(killed_workflow.log), {"A": "yes", "B": "no"})):
            options = {"durable": True, "id": "run-1", "yes": True, "record": cassette, "on_event": events.append}
            outcome = await callboard.run(killed_workflow.flow, "hello", **options)
    assert [each.content for each in outcome.final_messages or ()] == ["3\n"]
    assert (Plugin.ran, killed_workflow.requests, len(killed_workflow.asked)) == (2, 2, 2)
    replayed, found = await again(killed_workflow)
    assert replayed.differences == ()
    assert json.dumps(replayed.outcome.to_wire()["nodes"]) == json.dumps(outcome.to_wire()["nodes"])
    said = [event.data for event in found if event.kind == "node.exited"]
    assert [each.next for each in said] == [event.data.next for event in events if event.kind == "node.exited"]
    played = await callboard.run(
        killed_workflow.flow, "hello", replay=cassette, config_dir=killed_workflow.config, yes=True
    )
    assert (played.status, played.output) == ("done", "3\n")
    assert (Plugin.ran, killed_workflow.requests, len(killed_workflow.asked)) == (2, 2, 2)


async def test_what_is_played_is_not_touched_though_it_waits_to_go_on(killed_workflow: KilledWorkflow) -> None:
    assert await killed_workflow.play(kill=75) is None
    before = {
        str(path): path.read_bytes()
        for place in killed_workflow.directories()
        for path in place.rglob("*")
        if path.is_file()
    }
    assert len(before) > 5
    await again(killed_workflow)
    assert before == {path: Path(path).read_bytes() for path in before}


@pytest.fixture
def whole(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> KilledWholeRun:
    for name in ("state", "cache"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    return KilledWholeRun(tmp_path, fake_model)


async def test_a_session_with_everything_is_replayed_byte_for_byte(whole: KilledWholeRun) -> None:
    said = await whole.play()
    assert said is not None
    requests, effects = whole.requests, whole.effects
    replayed, _ = await again_in_any_order(whole)
    assert (replayed.differences, replayed.ended_early) == ((), False)
    assert json.dumps(replayed.outcome.to_wire()["output"]) == json.dumps(said["output"])
    assert replayed.outcome.to_wire()["nodes"] == said["nodes"]
    assert (whole.requests, whole.effects) == (requests, effects)


@pytest.mark.parametrize("kill", [150, *(pytest.param(row, marks=pytest.mark.soak) for row in range(5, 365, 8))])
async def test_a_session_with_everything_that_was_killed_is_replayed_as_far_as_it_went_and_to_its_end(
    whole: KilledWholeRun, kill: int
) -> None:
    assert await whole.play(kill=kill) is None
    replayed, _ = await again(whole)
    assert (replayed.ended_early, replayed.differences) == (True, ())
    said = await whole.play(resume=True)
    assert said is not None
    replayed, _ = await again(whole)
    assert (replayed.ended_early, replayed.differences) == (False, ())
    assert json.dumps(replayed.outcome.to_wire()["output"]) == json.dumps(said["output"])


ASKING = """
def asks(text, context):
    return context["human_prompt"].request("asked", "Sure?").text
"""


async def test_what_a_function_of_an_edge_has_asked_a_person_is_not_missed(killed_workflow: KilledWorkflow) -> None:
    (killed_workflow.flow.parent / "functions" / "edge_processor" / "asking.py").write_text(ASKING)
    killed_workflow.flow.write_text(
        SMALL
        + """    - {id: B, type: python, config: {code: 'print(2)'}}
  edges: [{from: A, to: B, process: {type: function, config: {name: asks}}}]
"""
    )
    async with callboard.Root(config_dir=killed_workflow.config) as root:
        with root.questions.attach(Person(root, str(killed_workflow.log), ANSWERS)):
            outcome = await callboard.run(killed_workflow.flow, "hello", durable=True, id="run-1", yes=True)
    asked = len(killed_workflow.asked)
    assert asked == 1
    replayed, _ = await again(killed_workflow)
    assert (replayed.differences, len(killed_workflow.asked)) == ((), asked)
    assert json.dumps(replayed.outcome.to_wire()) == json.dumps(outcome.to_wire())
