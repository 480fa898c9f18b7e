"""Replays: a durable run is played once more by its rows, to the same output and the same events."""

from __future__ import annotations

import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.mcp_entries import mcp_json, scripted, starts

import callboard
from callboard.actors.runs.rerun.replay import replay
from callboard.protocol.errors import CallboardError, NotFound
from callboard.protocol.events import AgentStarted, Event, Warned, to_wire
from callboard.protocol.journal import encode as encode_row
from callboard.protocol.messages import PersonSays
from callboard.supervisors.introspection import find

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "durable"))

from in_process import InProcessRun, Person, again, again_in_any_order
from support.messages import has_message, says

PROCESSES = ("/first.sh", "/item.sh", "/loop.sh", "/turn.sh", "execute_command/execute_command")


@pytest.fixture
def in_process_run(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> InProcessRun:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOST", "0")
    return InProcessRun(tmp_path, fake_model)


_DIFFERS = ("seconds", "timing", "server", "response_id")
"""Fields of events that a replay, which asks no server, can't have or has otherwise."""


def by_actor(events: list[Event]) -> dict[str, list[Any]]:
    """What happened to each actor, without what can't be the same: times, ids, servers, processes, pieces."""
    told: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        wire = to_wire(event)
        data = {name: value for name, value in wire["data"].items() if name not in _DIFFERS}
        if event.actor.endswith(PROCESSES) or event.kind == "run.resumed" or event.kind.startswith("mcp."):
            continue
        if isinstance(event.data, Warned) and event.data.code == "labels":  # docs/durable.md: not in a replay
            continue
        if event.kind == "llm.delta" and told[event.actor] and told[event.actor][-1][0] == "llm.delta":
            told[event.actor][-1][1]["text"] += data["text"]
            continue
        if event.kind == "usage.update":  # totals of the run, by requests side by side
            data = {name: value for name, value in data.items() if name.startswith("node")}
        told[event.actor].append((event.kind, data))
    return told


async def test_output_and_events_are_those_of_the_run_and_nothing_is_sent_or_started(
    in_process_run: InProcessRun,
) -> None:
    events: list[Event] = []
    async with callboard.Root(config_dir=in_process_run.config) as root:
        with root.questions.attach(Person(root, str(in_process_run.log))):
            outcome = await callboard.run("g", "hello", durable=True, id="run-1", yes=True, on_event=events.append)
    rows, effects, requests = in_process_run.read(), in_process_run.effects, in_process_run.requests
    for script in (in_process_run.config / "agents" / "g").glob("*.sh"):
        script.write_text(f"echo again >> {in_process_run.world}")
    (in_process_run.config / "config.yaml").unlink()
    replayed, found = await again(in_process_run)
    assert replayed.differences == ()
    assert not replayed.ended_early
    assert json.dumps(replayed.outcome.to_wire()) == json.dumps(outcome.to_wire())
    assert by_actor(found) == by_actor(events)
    assert any(isinstance(event.data, Warned) and event.data.code == "labels" for event in events)
    assert not any(isinstance(event.data, Warned) for event in found)
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    assert (in_process_run.effects, in_process_run.requests) == (effects, requests)
    assert [encode_row(row) for _, row in in_process_run.read()] == [encode_row(row) for _, row in rows]


async def test_it_is_the_same_byte_for_byte_in_whatever_order_trio_runs_its_tasks(in_process_run: InProcessRun) -> None:
    await in_process_run.begin()
    await again_in_any_order(in_process_run)


@pytest.mark.parametrize("kill", [9, 24, 44, pytest.param(12, marks=pytest.mark.soak)])
@pytest.mark.sample(1)
async def test_of_a_run_that_was_killed_it_goes_as_far_as_the_rows_do_and_after_resume_to_the_end(
    in_process_run: InProcessRun, kill: int
) -> None:
    assert await in_process_run.play(kill=kill) is None
    replayed, _ = await again(in_process_run)
    assert (replayed.ended_early, replayed.differences, replayed.outcome.status) == (True, (), "cancelled")
    said = await in_process_run.play(resume=True)
    assert said is not None
    replayed, _ = await again(in_process_run)
    assert (replayed.ended_early, replayed.differences) == (False, ())
    assert json.dumps(replayed.outcome.to_wire()["output"]) == json.dumps(said["output"])
    assert replayed.outcome.to_wire()["nodes"] == said["nodes"]


async def test_a_fork_is_replayed_as_any_run(in_process_run: InProcessRun) -> None:
    await in_process_run.begin()
    forked = await in_process_run.fork("loop#2", id="run-2")
    replayed, _ = await again(in_process_run, "run-2")
    assert (replayed.differences, replayed.outcome.output) == ((), forked.output)


@pytest.mark.parametrize("at", ["tool", "name", "loop#2", 20, 33])
@pytest.mark.sample(2)
async def test_a_fork_with_another_state_is_replayed_from_where_it_was_begun(
    in_process_run: InProcessRun, at: int | str
) -> None:
    await in_process_run.begin()
    events: list[Event] = []
    forked = await in_process_run.fork(
        at, id="run-2", state={"who": "Cleo", "tooled": "by hand"}, on_event=events.append
    )
    replayed, found = await again_in_any_order(in_process_run, "run-2")
    assert (replayed.differences, replayed.ended_early) == ((), False)
    assert json.dumps(replayed.outcome.to_wire()) == json.dumps(forked.to_wire())
    assert by_actor(found) == by_actor(events)


async def test_where_todays_file_comes_to_something_else_that_is_listed_by_row(in_process_run: InProcessRun) -> None:
    await in_process_run.begin()
    file = in_process_run.config / "agents" / "g" / "graph.yaml"
    file.write_text(file.read_text().replace('"Your name?"', '"What is your name?"').replace("{tooled: ", "{tooled2: "))
    replayed, _ = await again(in_process_run)
    assert replayed.differences == ()
    replayed, _ = await again(in_process_run, with_changes=True)
    told = [(each.row, each.what) for each in replayed.differences]
    rows = [type(row).__name__ for _, row in in_process_run.read()]
    assert len(told) == 3
    assert rows[told[0][0] - 1] == "MessageRow"
    assert has_message(
        told[0][1],
        "runs.rerun.replaying.journal_index._first_difference",
        name_2="…writes {'tooled': 'tooled'}",
        name_3="{'tooled2': 'tooled'}",
    )
    assert rows[told[1][0] - 1] == "Asked"
    assert has_message(
        told[1][1],
        "runs.rerun.replay.ReplayedScopes.asked.2",
        text="Your name?",
        text_2="What is your name?",
    )


async def test_a_run_that_is_not_kept_or_not_whole_is_refused(in_process_run: InProcessRun) -> None:
    with pytest.raises(NotFound, match=says("runs.rerun.fork.stored_rows", run="run-9")):
        await trio.to_thread.run_sync(partial(replay, "run-9", config_dir=in_process_run.config))
    agent = callboard.Agent(name="a", instructions="A", can_ask_user=False)
    async with callboard.Root(config_dir=in_process_run.config):
        await callboard.run(agent, "hi", durable=True, id="run-3", tools=[shown])
    with pytest.raises(CallboardError, match=says("runs.rerun.replay._check", run="run-3", named="shown")):
        await trio.to_thread.run_sync(partial(replay, "run-3", config_dir=in_process_run.config))


def shown(text: str) -> str:
    """Shows a text."""
    return text


GRAPH = """
name: s
start: one
global_tools: [execute_command, fs_cat, get_current_time]
nodes:
"""


class Small:
    """Small graphs, each played once and replayed."""

    def __init__(self, in_process_run: InProcessRun, models: FakeModels) -> None:
        self.in_process_run = in_process_run
        self.models = models
        self.number = 0

    async def play(
        self,
        nodes: str,
        answer: Callable[[callboard.Question], str | None] = lambda _: None,
        hears: Callable[[callboard.Root, Event], None] = lambda root, event: None,
    ) -> None:
        """Both come to the same, event by event."""
        agent = self.in_process_run.config / "agents" / "s"
        shutil.rmtree(agent, ignore_errors=True)
        agent.mkdir()
        (agent / "graph.yaml").write_text(GRAPH + nodes)
        (agent / "bad.sh").write_text("echo wrong >&2\nexit 3\n")
        (agent / "slow.sh").write_text("exec sleep 60\n")
        self.number += 1
        run, events = f"run-s{self.number}", list[Event]()
        async with callboard.Root(
            config_dir=self.in_process_run.config, wait_for_front_end=answer is not nobody
        ) as root:
            person = FrontEnd(root, answer)

            def hear(event: Event) -> None:
                events.append(event)
                hears(root, event)

            with root.questions.attach(person) if answer is not nobody else root.kernel.shield(1e9):
                outcome = await callboard.run("s", "hello", durable=True, id=run, on_event=hear, yes=True)
        replayed, found = await again(self.in_process_run, run)
        assert replayed.differences == ()
        assert json.dumps(replayed.outcome.to_wire()) == json.dumps(outcome.to_wire())
        assert without_processes(found) == without_processes(events)


def without_processes(events: list[Event]) -> dict[str, list[Any]]:
    return {actor: told for actor, told in by_actor(events).items() if not actor.endswith(".sh")}


def nobody(_: callboard.Question) -> None:
    """Nobody is there."""


class FrontEnd:
    """Answers as it is told."""

    name = "person"

    def __init__(self, root: callboard.Root, answer: Callable[[callboard.Question], str | None]) -> None:
        self._root = root
        self._answer = answer

    def asked(self, question: callboard.Question) -> None:
        answer = self._answer(question)
        if answer is not None:
            self._root.questions.answer(question.id, answer, by="person")

    def closed(self, question_id: str, by: str) -> None:
        pass


@pytest.fixture
def small(in_process_run: InProcessRun, fake_model: FakeModels) -> Small:
    return Small(in_process_run, fake_model)


DONE = '  done: {type: end, output: "{{x}}"}\n'


async def test_scripts_that_fail_and_take_too_long_do_so_again(small: Small) -> None:
    await small.play("  one: {type: script, script: bad.sh, fallback: done}\n" + DONE)
    await small.play("  one: {type: script, script: bad.sh}\n" + DONE)
    await small.play("  one: {type: script, script: slow.sh, timeout: 1, fallback: done}\n" + DONE)


async def test_questions_that_nobody_answers_in_time_or_at_all_end_in_the_same_way(small: Small) -> None:
    asks = '  one: {type: approval, question: Go?, options: ["yes"], routes: {"yes": done}, on_other: done'
    await small.play(asks + ", timeout: 1, on_timeout: done}\n" + DONE, lambda _: None)
    await small.play(asks + ", timeout: 1}\n" + DONE, lambda _: None)
    await small.play(asks + "}\n" + DONE, nobody)
    await small.play(asks + "}\n" + DONE, lambda _: "yes")


async def test_models_that_fail_do_so_again(small: Small) -> None:
    small.models.answer_with(lambda _: Reply(status=400, error="no such thing"))
    await small.play("  one: {type: llm, prompt: P, next: done}\n" + DONE)
    await small.play("  one: {type: llm, prompt: P, fallback: done, next: done}\n" + DONE)
    await small.play("  one: {type: llm, prompt: P, tools: [get_current_time], next: done}\n" + DONE)


async def test_calls_that_fail_are_refused_or_denied_are_so_again(small: Small) -> None:
    def say(request: Request) -> Reply:
        calls = [("execute_command", {"command": "exit 4"}), ("nothing", {}), ("fs_cat", {"path": "/nowhere"})]
        return Reply(text="over") if request.results else Reply(calls=[*calls, ("fs_cat", {"wrong": 1})])

    small.models.answer_with(say)
    await small.play("  one: {type: llm, prompt: P, tools: [execute_command, fs_cat], next: done}\n" + DONE)


AGENT = """
name: a
instructions: "AGENT {{__now__}}"
mcp_servers: [srv, three]
mcp_tools: {srv: [echo], three: meta}
global_tools: [execute_command]
auto_continue: true
"""


async def test_an_agent_with_servers_that_a_person_has_written_to_is_replayed_without_servers(
    in_process_run: InProcessRun, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (in_process_run.config / "agents" / "a").mkdir()
    (in_process_run.config / "agents" / "a" / "config.yaml").write_text(
        AGENT.replace("mcp_tools: {srv: [echo], three: meta}", "mcp_tools: {srv: [echo]}")
    )
    mcp_json(in_process_run.config, srv=scripted(), three=scripted())

    def say(request: Request) -> Reply:
        calls = [
            [("srv__echo", {"text": "hello"}), ("todo__init", {"goal": "g"})],
            [("execute_command", {"command": "exit 3"})],
        ]
        if len(request.results) < 3:
            return Reply(calls=calls[0] if not request.results else calls[1])
        return Reply(text=f"heard {request.prompt}")

    fake_model.answer_with(say)
    events: list[Event] = []
    async with callboard.Root(config_dir=in_process_run.config) as root:

        def hears(event: Event) -> None:
            events.append(event)
            if event.kind == "tool.call.started" and getattr(event.data, "tool", "") == "execute_command":
                actor = find(root.kernel, event.parent)
                assert actor is not None
                actor.ref.tell_nowait(PersonSays(text="and more", by="ann"))

        outcome = await callboard.run("a", "words", durable=True, id="run-1", yes=True, on_event=hears)
    assert outcome.output == "heard and more"
    begun = starts(in_process_run.config, "srv")
    assert begun
    replayed, found = await again(in_process_run)
    assert replayed.differences == ()
    assert json.dumps(replayed.outcome.to_wire()) == json.dumps(outcome.to_wire())
    assert by_actor(found) == by_actor(events)
    assert starts(in_process_run.config, "srv") == begun
    tools = next(event.data.tools for event in found if isinstance(event.data, AgentStarted))
    assert "srv__echo" in tools


MAP = """
name: many
start: each
settings: {max_concurrency: 1000}
nodes:
  each: {type: map, over: "{{items}}", as: it, branch: one, collect_into: all, output_key: said, next: done}
  one: {type: llm, prompt: "P {{it}}", state_updates: {said: "{{output}}"}}
  done: {type: end, output: over}
"""


@pytest.mark.full
async def test_a_thousand_at_once_are_replayed_in_seconds(in_process_run: InProcessRun, fake_model: FakeModels) -> None:
    (in_process_run.config / "agents" / "many").mkdir()
    (in_process_run.config / "agents" / "many" / "graph.yaml").write_text(MAP)
    fake_model.answer_with(lambda request: Reply(text=request.prompt[2:]))
    state = {"items": list(range(1000))}
    outcome = await callboard.run("many", "x", state=state, durable=True, id="run-1", config_dir=in_process_run.config)
    with trio.fail_after(60):  # it was minutes
        replayed, _ = await again(in_process_run)
    assert replayed.differences == ()
    assert json.dumps(replayed.outcome.to_wire()) == json.dumps(outcome.to_wire())


async def test_a_node_that_a_person_has_cancelled_is_cancelled_again(small: Small) -> None:
    def cancels(root: callboard.Root, event: Event) -> None:
        if event.kind == "tool.call.started":
            actor = find(root.kernel, event.actor)
            assert actor is not None
            actor.interrupt()

    await small.play("  one: {type: script, script: slow.sh, fallback: done}\n" + DONE, hears=cancels)
