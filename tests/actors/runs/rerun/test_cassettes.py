"""Cassettes: a run is recorded on one machine and played on another, without a network or processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
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
from callboard.protocol.cassette import AnswerLine, CassetteEnd, DoneLine, Head, ReplyLine, read_cassette
from callboard.protocol.errors import InvalidFile, UsageError
from callboard.protocol.events import Event
from callboard.protocol.kernel.questions import Question

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "durable"))

from everything import EFFECTS
from flow import ANSWERS, KilledWorkflow
from in_process import InProcessRun, Person
from support.messages import has_message, says

AGENT = """
name: a
instructions: "You are in {{__cwd__}} on {{__os__}} at {{__now__}}."
global_tools: [execute_command, get_current_time]
can_ask_user: true
"""


class Studio:
    """A machine on which runs are recorded, and one without a network on which they are played.

    Attributes:
        file: the cassette.
    """

    def __init__(self, home: Path, models: FakeModels, patch: pytest.MonkeyPatch) -> None:
        self._home = home
        self._patch = patch
        self._models = models
        self.config = models.config_dir(home / "here" / "config")
        self.file = home / "cassettes" / "one.jsonl"
        self.be("here", "Europe/Berlin")

    def be(self, name: str, zone: str) -> None:
        """On a machine of this name: other directories, another time zone."""
        for variable, place in {"HOME": "home", "XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache"}.items():
            self._patch.setenv(variable, str(self._home / name / place))
        self._patch.setenv("TZ", zone)
        (self._home / name / "work").mkdir(parents=True, exist_ok=True)
        self._patch.chdir(self._home / name / "work")

    def agent(self, text: str, name: str = "a", file: str = "config.yaml") -> Path:
        """An agent of this file."""
        directory = self.config / "agents" / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text)
        return directory

    async def record(self, target: str = "a", prompt: str = "words", **options: Any) -> callboard.Outcome:
        """Play it with the model, and record it."""
        return await callboard.run(target, prompt, config_dir=self.config, record=self.file, **options)

    async def elsewhere(self, target: str = "a", prompt: str = "words", **options: Any) -> callboard.Outcome:
        """Play it by the cassette on the other machine, which has the agents and nothing else."""
        config = self._home / "there" / "etc" / "config"
        shutil.rmtree(config, ignore_errors=True)
        shutil.copytree(self.config, config)
        (config / "config.yaml").unlink()
        self.be("there", "Asia/Tokyo")
        requests = len(self._models.requests)
        outcome = await callboard.run(target, prompt, config_dir=config, replay=self.file, **options)
        assert len(self._models.requests) == requests
        return outcome

    @property
    def text(self) -> str:
        """The cassette."""
        return self.file.read_text()

    def lines(self, kind: type[Any]) -> list[Any]:
        """Its lines of a kind."""
        return [line for line in read_cassette(self.text, "x") if isinstance(line, kind)]


@pytest.fixture
def studio(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> Studio:
    return Studio(tmp_path, fake_model, monkeypatch)


def calls_then(*calls: tuple[str, dict[str, Any]], text: str = "over") -> Callable[[Request], Reply]:
    """A model that makes these calls, one after the other, and then says so."""

    def say(request: Request) -> Reply:
        done = len(request.results)
        return Reply(calls=[calls[done]]) if done < len(calls) else Reply(text=text)

    return say


async def test_the_great_run_is_played_without_a_model_a_script_or_a_person(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOST", "0")
    in_process_run, file = InProcessRun(tmp_path, fake_model), tmp_path / "great.jsonl"
    async with callboard.Root(config_dir=in_process_run.config) as root:
        with root.questions.attach(Person(root, str(in_process_run.log))):
            recorded = await callboard.run("g", "hello", yes=True, record=file)
    requests, asked = in_process_run.requests, len(in_process_run.asked)
    played = await callboard.run("g", "hello", yes=True, replay=file, config_dir=in_process_run.config)
    assert (played.status, played.output, played.state) == ("done", recorded.output, recorded.state)
    assert (played.order, played.turns, played.tool_calls) == (recorded.order, recorded.turns, recorded.tool_calls)
    assert played.usage == recorded.usage
    assert in_process_run.effects == dict.fromkeys(EFFECTS, 1)
    assert (in_process_run.requests, len(in_process_run.asked)) == (requests, asked)


async def test_paths_times_and_ids_of_one_machine_are_those_of_the_other(
    studio: Studio, fake_model: FakeModels
) -> None:
    studio.agent(AGENT)

    def say(request: Request) -> Reply:
        if not request.results:
            return Reply(
                calls=[("execute_command", {"command": "pwd; echo $HOME; date +%N"}), ("get_current_time", {})]
            )
        here = request.results[0].splitlines()[0]
        return (
            Reply(calls=[("execute_command", {"command": f"echo {here}/x"})])
            if len(request.results) < 3
            else Reply(text=f"at {request.results[2].strip()}")
        )

    fake_model.answer_with(say)
    recorded = await studio.record(yes=True)
    here = str(Path.cwd())
    assert recorded.output == f"at {here}/x"
    assert here not in studio.text
    assert "‹cwd›/x" in studio.text
    assert re.search(r'"id":"call-\d', studio.text)
    played = await studio.elsewhere(yes=True)
    assert played.error is None
    assert played.output == f"at {Path.cwd()}/x" != recorded.output
    assert (played.usage, played.tool_calls) == (recorded.usage, recorded.tool_calls)


async def test_a_request_that_differs_fails_the_run_and_says_what_differs(
    studio: Studio, fake_model: FakeModels
) -> None:
    graph = """
name: g
start: one
nodes:
  one: {type: llm, prompt: "First {{initial_prompt}}.\\nWrite about dogs.", on_error: continue, next: two}
  two: {type: llm, prompt: "second", fallback: done, next: done}
  done: {type: end, output: "done"}
"""
    studio.agent(graph, "g", "graph.yaml")
    await studio.record("g", "hello")
    studio.agent(graph.replace("dogs", "cats"), "g", "graph.yaml")
    played = await studio.elsewhere("g", "hello")
    assert played.status == "failed"
    assert played.error is not None
    assert played.error.code == "cassette_differs"
    assert has_message(
        played.error.message,
        "runs.rerun.cassettes.playback.RemainingLines._differs.6",
        what="request to a model",
        where="/g/one",
    )
    assert "  -  Write about dogs." in played.error.message
    assert "  +  Write about cats." in played.error.message
    assert has_message(played.error.message, "runs.rerun.cassettes.playback.RemainingLines._differs.7")
    played = await studio.elsewhere("g", "hello", loose=True)
    assert (played.status, played.output) == ("done", "done")


async def test_an_effect_that_differs_or_is_new_fails_the_run_even_where_a_model_would_be_told(
    studio: Studio, fake_model: FakeModels
) -> None:
    studio.agent(AGENT)
    fake_model.answer_with(calls_then(("execute_command", {"command": "echo one"})))
    await studio.record(yes=True)
    text = studio.text
    studio.file.write_text(text.replace("echo one", "echo two", text.count("echo one") - 1))
    played = await studio.elsewhere(yes=True)
    assert played.error is not None
    assert has_message(
        played.error.message,
        "runs.rerun.cassettes.playback.RemainingLines._differs.6",
        what="tool 'execute_command'",
        where="/a/execute_command",
    )
    studio.file.write_text("".join(line for line in text.splitlines(True) if '"line":"done"' not in line))
    played = await studio.elsewhere(yes=True)
    assert played.error is not None
    assert has_message(
        played.error.message,
        "runs.rerun.cassettes.playback.RemainingLines._differs.3",
        what="tool 'execute_command'",
        where="/a/execute_command",
    )


async def test_what_is_left_of_a_cassette_is_a_warning(studio: Studio, fake_model: FakeModels) -> None:
    graph = """
name: g
start: one
nodes:
  one: {type: llm, prompt: "first", next: two}
  two: {type: llm, prompt: "second", next: done}
  done: {type: end, output: "done"}
"""
    studio.agent(graph, "g", "graph.yaml")
    await studio.record("g", "hello")
    studio.agent(graph.replace("next: two", "next: done"), "g", "graph.yaml")
    events: list[Event] = []
    played = await studio.elsewhere("g", "hello", on_event=events.append)
    assert played.status == "done"
    warned = [event.data for event in events if event.kind == "run.warning"]
    assert any(
        has_message(str(data), "runs.execution.Execution._close", unused="a request of /g/two…") for data in warned
    )


async def test_failures_of_models_and_tools_are_played_as_well(studio: Studio, fake_model: FakeModels) -> None:
    studio.agent(AGENT)
    fake_model.script(Reply(calls=[("execute_command", {"command": "exit 3"})]), Reply(status=400, error="too late"))
    recorded = await studio.record(yes=True)
    assert recorded.error is not None
    played = await studio.elsewhere(yes=True)
    assert played.error == recorded.error


async def test_secrets_and_headers_are_in_no_cassette(
    studio: Studio, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sesame-open-0123456789")
    studio.agent(AGENT)
    fake_model.answer_with(calls_then(("execute_command", {"command": "echo $SOME_API_KEY"})))
    await studio.record(yes=True)
    key = fake_model.requests[0].headers["authorization"].removeprefix("Bearer ")
    assert "sesame" not in studio.text
    assert key not in studio.text
    assert "authorization" not in studio.text.lower()


async def test_questions_have_the_answers_and_the_ends_that_they_had(studio: Studio, fake_model: FakeModels) -> None:
    asks = '{type: approval, question: "ID?", options: ["yes", "no"], routes: {"yes": NEXT, "no": NEXT}, on_other: NEXT'
    nodes = [
        "one: " + asks.replace("ID", "one").replace("NEXT", "two") + "}",
        "two: " + asks.replace("ID", "two").replace("NEXT", "three") + ", timeout: 0.1, on_timeout: three}",
        "three: " + asks.replace("ID", "three").replace("NEXT", "done") + ", state_updates: {chosen: '{{choice}}'}}",
    ]
    graph = "name: g\nstart: one\nnodes:\n  " + "\n  ".join(nodes) + "\n  done: {type: end, output: '{{chosen}}'}\n"
    studio.agent(graph, "g", "graph.yaml")
    async with callboard.Root(config_dir=studio.config) as root:

        class Answers(Person):
            def asked(self, question: callboard.Question) -> None:
                if question.node != "two":
                    root.questions.answer(question.id, "no" if question.node == "three" else "yes", by="person")

        with root.questions.attach(Answers(root, os.devnull)):
            recorded = await callboard.run("g", "hello", record=studio.file)
    assert recorded.output == "no"
    lines = [(line.question, line.value, line.by, line.reason) for line in studio.lines(AnswerLine)]
    assert lines == [("one?", "yes", "person", ""), ("two?", "", "", "timeout"), ("three?", "no", "person", "")]
    events: list[Event] = []
    played = await studio.elsewhere("g", "hello", on_event=events.append)
    assert (played.output, played.order) == ("no", recorded.order)
    kinds = [event.kind for event in events if event.kind.startswith("question.")]
    assert kinds == ["question.asked", "question.answered", "question.asked", "question.expired", *kinds[:2]]


async def test_children_have_the_same_ids_and_the_same_letters(studio: Studio, fake_model: FakeModels) -> None:
    studio.agent("name: boss\ninstructions: BOSS\ncan_spawn_agents: true\n", "boss")
    studio.agent("name: hand\ninstructions: HAND\n", "hand")

    def say(request: Request) -> Reply:
        if "HAND" in request.system:
            return Reply(text=f"hand did {request.prompt}")
        results = request.results
        if not results:
            return Reply(calls=[("agent__spawn", {"agent": "hand", "prompt": f"job {n}"}) for n in (1, 2)])
        ids = [json.loads(result)["id"] for result in results[:2]]
        if len(results) < 4:
            return Reply(calls=[("agent__collect", {"id": id}) for id in ids])
        return Reply(text=" ".join(json.loads(result)["output"] for result in results[2:]))

    fake_model.answer_with(say)
    recorded = await studio.record("boss", "go")
    assert recorded.output == "hand did job 1 hand did job 2"
    played = await studio.elsewhere("boss", "go")
    assert (played.error, played.output) == (None, recorded.output)
    assert [child.id for child in played.children] == [child.id for child in recorded.children]


async def test_servers_are_not_started_and_their_tools_are_known(studio: Studio, fake_model: FakeModels) -> None:
    studio.agent(AGENT + "mcp_servers: [srv]\nmcp_tools: {srv: [echo]}\n")
    mcp_json(studio.config, srv=scripted())
    fake_model.answer_with(calls_then(("srv__echo", {"text": "hello"})))
    recorded = await studio.record(yes=True)
    begun = starts(studio.config, "srv")
    assert begun
    (line,) = [line for line in studio.lines(DoneLine) if line.kind == "tool"]
    assert (line.name, line.at) == ("srv__echo", "/a/srv__echo")
    played = await studio.elsewhere(yes=True)
    assert (played.error, played.output) == (None, recorded.output)
    assert starts(studio.config, "srv") == begun


async def test_a_role_and_a_function_of_a_program_are_recorded_too(studio: Studio, fake_model: FakeModels) -> None:
    called: list[str] = []

    def look(thing: str) -> str:
        """Looks at a thing.

        Args:
            thing: what.
        """
        called.append(thing)
        return f"a {thing}"

    agent = callboard.Agent(name="p", instructions="At {{__now__}}", can_ask_user=False)
    fake_model.answer_with(calls_then(("look", {"thing": "cat"})))
    async with callboard.Root(config_dir=studio.config):
        await callboard.run(agent, "go", tools=[look], record=studio.file, yes=True)
        played = await callboard.run(agent, "go", tools=[look], replay=studio.file, yes=True)
    assert (played.error, called) == (None, ["cat"])
    role = "At {{__now__}} say __INPUT__"
    asked = callboard.Agent(name="q", can_ask_user=False)
    async with callboard.Root(config_dir=studio.config):
        await callboard.run(asked, "hi", role_prompt=role, record=studio.file)
        played = await callboard.run(asked, "hi", role_prompt=role, replay=studio.file)
    assert played.error is None


async def test_a_cassette_is_whole_or_what_it_was_before(studio: Studio, fake_model: FakeModels) -> None:
    studio.agent(AGENT)
    await studio.record()
    head, *_, end = read_cassette(studio.text, "x")
    assert isinstance(head, Head)
    assert (head.target, head.prompt, head.model) == ("a", "words", "fake:model")
    assert end == CassetteEnd(status="done")
    assert len(studio.lines(ReplyLine)) == 1
    before = studio.text
    fake_model.script(Reply(text="never", hold=trio.Event()))
    with trio.move_on_after(60) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(studio.record)
            await fake_model.arrived(2)
            scope.cancel()
    assert studio.text == before
    assert [path.name for path in studio.file.parent.iterdir()] == ["one.jsonl"]


async def test_what_is_no_cassette_is_refused_by_line(studio: Studio) -> None:
    studio.agent(AGENT)
    studio.file.parent.mkdir()
    for text, why in {
        "": "the file is empty",
        "hello\n": ":1:1: error: this is not a line of a cassette",
        '{"line":"piece","hash":"x","value":1}\n': "its first line should begin",
        '{"line":"cassette","version":99}\n': "by a newer version of callboard",
        '{"line":"cassette"}\n{"line":"what"}\n': ":2:1: error: this is not a line of a cassette",
        '{"line":"cassette"}\n': "its last line is missing",
    }.items():
        studio.file.write_text(text)
        with pytest.raises(InvalidFile, match=re.escape(why)):
            await callboard.run("a", "x", replay=studio.file, config_dir=studio.config)
    studio.file.unlink()
    with pytest.raises(UsageError, match=says("runs.rerun.cassettes.playback._text.2")):
        await callboard.run("a", "x", replay=studio.file, config_dir=studio.config)
    with pytest.raises(UsageError, match=says("runs.rerun.cassettes.playback_of")):
        await callboard.run("a", "x", replay=studio.file, record=studio.file, config_dir=studio.config)


async def test_a_workflow_is_played_without_its_programs_functions_or_memories(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOST", "0")
    in_process_run, file = KilledWorkflow(tmp_path, fake_model), tmp_path / "flow.jsonl"
    outcomes, rest = [], {"yes": True, "answers": ANSWERS}
    for durable in (True, False):
        outcomes.append(
            await callboard.run(
                in_process_run.flow,
                "hello",
                attach=[in_process_run.note],
                config_dir=in_process_run.config,
                record=file,
                durable=durable,
                **rest,
            )
        )
        assert outcomes[-1].status == "done"
        effects, requests = in_process_run.effects, in_process_run.requests
        there = tmp_path / f"there-{durable}"
        shutil.copytree(in_process_run.flow.parent, there / "flow")
        monkeypatch.chdir(there)
        events: list[Event] = []
        played = await callboard.run(
            "flow/flow.yaml", "hello", config_dir=in_process_run.config, replay=file, on_event=events.append, **rest
        )
        assert (played.status, played.output) == ("done", outcomes[-1].output)
        assert (played.order, played.final_messages) == (outcomes[-1].order, outcomes[-1].final_messages)
        assert (in_process_run.effects, in_process_run.requests) == (effects, requests)
        assert not [event for event in events if event.kind == "warning"]


async def test_code_that_is_another_than_was_recorded_differs(studio: Studio) -> None:
    flow = studio.config / "flow.yaml"
    text = "graph: {id: f, start: [a], nodes: [{id: a, type: python, config: {code: print(1)}}], edges: []}\n"
    flow.write_text(text)
    await studio.record(str(flow))
    assert (await studio.elsewhere(str(flow))).output == "1\n"
    flow.write_text(text.replace("print(1)", "print(2)"))
    outcome = await studio.elsewhere(str(flow))
    assert outcome.error is not None
    assert outcome.error.code == "cassette_differs"
    assert has_message(
        outcome.error.message,
        "runs.rerun.cassettes.playback.RemainingLines._differs.6",
        what="code 'a'",
        where="/f/a",
    )
    assert '-"print(1)"' in outcome.error.message


class Agreeing(Person):
    """A person who says yes to whatever is asked."""

    def asked(self, question: Question) -> None:
        self._root.kernel.questions.answer(question.id, "yes", by="person")


async def test_an_edit_that_did_not_apply_is_no_question_when_it_is_played_either(studio: Studio) -> None:
    studio.agent("name: a\ninstructions: Edit.\nglobal_tools: [fs_edit]\n")
    Path("x").write_text("one\n")
    edits = [[{"old_string": old, "new_string": "1"}] for old in ("two", "one")]
    studio._models.answer_with(calls_then(*(("fs_edit", {"path": "x", "edits": each}) for each in edits)))
    events: list[Event] = []
    async with callboard.Root(config_dir=studio.config) as root:
        with root.questions.attach(Agreeing(root, os.devnull)):
            live = await callboard.run("a", "go", record=studio.file, durable=True, id="run-1", on_event=events.append)
    assert (live.status, live.output, Path("x").read_text()) == ("done", "over", "1\n")
    assert [event.kind for event in events].count("question.asked") == 1
    replay_events: list[Event] = []
    again = partial(replay, "run-1", config_dir=studio.config, on_event=replay_events.append)
    replayed = await trio.to_thread.run_sync(again)
    assert (replayed.differences, replayed.ended_early, replayed.outcome.output) == ((), False, "over")
    assert [event.kind for event in replay_events].count("question.asked") == 1
    played = await studio.elsewhere(prompt="go")
    assert (played.status, played.output) == ("done", "over")
