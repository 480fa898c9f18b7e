"""What clients do that nobody meant, and what comes of runs and texts that nobody expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.control_frames import Frames, held_against_the_schema
from support.control_hub import Client, MadeRun, Served, hub_of
from support.fake_models import Reply
from support.messages import has_message
from support.waiting import until

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.logs.files import read_summary
from callboard.actors.front.control.peer import ControlPeer
from callboard.actors.io.outbox import PeerClosed
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.control.method_structs import StartRun
from callboard.protocol.control.resources import QuestionAsked
from callboard.protocol.events import LlmDelta, RunFinished, RunStarted, Warned
from callboard.protocol.kernel.questions import Question
from callboard.supervisors import Actor


class Line:
    """A connection whose client is the test."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = False
        self.peer: ControlPeer

    async def send(self, frame: bytes) -> None:
        if self.gone:
            raise PeerClosed
        self.sent.append(msgspec.json.decode(frame))


@pytest.fixture
async def line(root: callboard.Root, hub: Hub) -> Line:
    line, there = Line(), trio.Event()

    async def client(me: Actor) -> None:
        line.peer = ControlPeer(me, hub, LOCAL, line.send)
        there.set()
        await trio.sleep_forever()

    root.kernel.spawn(client, link=False)
    await there.wait()
    return line


@pytest.mark.parametrize(
    ("frame", "id"),
    [
        (b'{"id":null,"method":"_server/info"}', None),
        (b'{"id":1.5,"method":"_server/info"}', None),
        (b'{"id":true,"method":"_server/info"}', None),
        (b'{"id":7,"method":7}', 7),
        (b'{"id":"x","method":null}', "x"),
        (b'{"id":8}', 8),
        (b'{"id":9,"error":"no"}', 9),
    ],
)
async def test_a_message_that_is_none_is_refused_by_its_id_if_it_has_one(line: Line, frame: bytes, id: Any) -> None:
    await line.peer.receive(frame)
    assert [(each["id"], each["error"]["code"]) for each in line.sent] == [(id, -32600)]


async def test_a_number_of_any_size_is_an_id(line: Line) -> None:
    await line.peer.receive(b'{"id":123456789012345678901234567890,"method":"_server/info"}')
    assert line.sent[0]["id"] == 123456789012345678901234567890


async def test_an_answer_of_the_client_that_is_none_ends_the_wait_for_it(line: Line) -> None:
    refused: list[str] = []

    async def ask() -> None:
        try:
            await line.peer.request("session/request_permission", {})
        except callboard.CallboardError as error:
            refused.append(str(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await until(lambda: line.sent)
        await line.peer.receive(json.dumps({"id": line.sent[0]["id"], "error": "no"}).encode())
        with trio.fail_after(60):
            await until(lambda: refused)
    assert has_message(refused[0], "io.peer.Peer._not_understood")
    assert len(line.sent) == 1


async def test_a_client_that_goes_before_the_answer_leaves_no_watch(hub: Hub, line: Line) -> None:
    line.gone = True
    await line.peer.receive(b'{"id":1,"method":"_actor/subscribe"}')
    await until(lambda: line.peer.idle)
    assert not hub.actors._watches
    line.gone = False
    await line.peer.receive(b'{"id":2,"method":"_actor/subscribe"}')
    while not line.peer._subscriptions:  # in the very turn in which there is one
        await trio.lowlevel.checkpoint()
    assert len(hub.actors._watches) == 1
    line.peer.close()  # before the subscription's actor has done anything
    await until(lambda: not hub.actors._watches)


def _odd_run(root: callboard.Root, id: str, prompt: str, output: str) -> MadeRun:
    run = MadeRun(root, id)
    run.actor.emit(RunStarted(target="made", name="made", dialect="agent", prompt=prompt))
    outcome = callboard.Outcome(run_id=id, status="done", output=output)
    run.actor.emit(RunFinished(outcome=outcome.to_wire()))
    run.end()
    return run


async def test_half_a_character_spoils_neither_the_list_nor_the_logs(
    root: callboard.Root, hub: Hub, client: Client
) -> None:
    good = MadeRun(root, "run-good")
    run = _odd_run(root, "run-odd", "half \ud800", "a pair \udfff")
    await until(lambda: run.id in hub.logs.past)
    found = {info["run"]: info for info in (await client.result("_run/list"))["runs"]}
    assert (found["run-odd"]["prompt"], found["run-odd"]["output"]) == ("half ?", "a pair ?")
    kept = read_summary(hub.logs.directory / run.id)
    assert kept is not None
    assert kept.info.status == "done"
    good.say()
    good.end()
    with hub.subscribe(LOCAL, good.id) as events:
        assert [event.seq async for event in events] == [1, 2, 3, 4]


async def test_half_a_character_in_a_question_reaches_who_is_to_answer(
    root: callboard.Root, hub: Hub, client: Client
) -> None:
    async def asks(me: Actor) -> None:
        await me.ask_person(Question(id="", actor="", text="which of \ud800?"))

    await client.result("_question/subscribe")
    ref = root.kernel.spawn(asks, link=False)
    assert (await client.until_told("_question/asked"))["question"]["text"] == "which of ??"
    assert [each["text"] for each in (await client.result("_question/list"))["questions"]] == ["which of ??"]
    ref.cancel()


async def test_a_secret_is_in_no_summary(root: callboard.Root, tmp_path: Path) -> None:
    def redact(line: bytes) -> bytes:
        return line.replace(b"sk-secret", b"[redacted]")

    async with hub_of(root, tmp_path, redact=redact) as hub:
        run = _odd_run(root, "run-secret", "use sk-secret", "it was sk-secret")
        await until(lambda: run.id in hub.logs.past)
        info = hub.get(LOCAL, run.id)
        assert (info.prompt, info.output) == ("use [redacted]", "it was [redacted]")
        texts = [path.read_text() for path in (hub.logs.directory / run.id).iterdir()]
    assert len(texts) == 2
    assert not [text for text in texts if "sk-secret" in text]


async def test_an_event_that_we_stumble_over_costs_neither_the_run_nor_the_others(
    root: callboard.Root, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: Any) -> None:
        raise ZeroDivisionError

    run = MadeRun(root, "run-stumble")
    monkeypatch.setattr(hub.actors, "take", stumble)
    run.say()
    monkeypatch.undo()
    run.say()
    other = MadeRun(root, "run-other")
    for each in (run, other):
        each.end()
        assert (await hub.wait(LOCAL, each.id)).status == "done"
    with hub.subscribe(LOCAL, run.id) as events:
        assert [event.seq async for event in events] == [1, 2, 3, 4, 5]


async def test_an_event_that_can_not_be_encoded_at_all_leaves_no_gap(root: callboard.Root, hub: Hub) -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    run = MadeRun(root, "run-circle")
    run.actor.emit(RunFinished(outcome=circle))
    with hub.subscribe(LOCAL, run.id) as events:
        assert [event.seq async for event in events] == [1, 2, 3]
    assert hub.get(LOCAL, run.id).status == "done"
    run.end()


async def test_who_watches_questions_gets_through_however_many_are_open(root: callboard.Root, tmp_path: Path) -> None:
    async def asks(me: Actor) -> None:
        await me.ask_person(Question(id="", actor="", text="well?"))

    async with hub_of(root, tmp_path, questions=3) as hub:
        refs = [root.kernel.spawn(asks, link=False) for _ in range(8)]
        await until(lambda: len(hub.questions(LOCAL)) == 8)
        with hub.watch_questions(LOCAL) as feed, trio.fail_after(60):
            for _ in range(8):
                assert isinstance(await anext(feed), QuestionAsked)
        for ref in refs:
            ref.cancel()


async def test_what_is_told_of_an_actor_after_its_end_is_not_kept(root: callboard.Root, hub: Hub) -> None:
    run = MadeRun(root, "run-late")
    child = run.actor.adopt(_idle, (), name="child", bond="watched")
    child.launch()
    view = hub.running.live[run.id].view
    assert f"/{run.id}/child" in view.actors
    child.interrupt()
    await until(lambda: child.end is not None)
    child.emit(Warned(code="late", message="said after its end"))
    run.end()
    await until(lambda: run.actor.end is not None)
    run.actor.emit(LlmDelta(text="so is this"))
    assert view.actors == {}


async def _idle(me: Actor) -> None:
    me.started()
    await trio.sleep_forever()


async def test_actors_that_come_and_go_pile_up_for_no_slow_watcher(root: callboard.Root, hub: Hub) -> None:
    run = MadeRun(root, "run-churn")
    with hub.actors.watch_tree(LOCAL, run.id, 0.02) as changes:
        steady = run.actor.adopt(_idle, (), name="steady", bond="watched")
        steady.launch()
        for number in range(200):
            child = run.actor.adopt(_idle, (), name=f"child{number}", bond="watched")
            child.launch()
            child.interrupt()
            await until(lambda child=child: child.end is not None)
        assert len(changes._touched) < 10
        with trio.fail_after(60):
            change = await anext(changes)
        assert [actor.name for actor in change.changed] == [run.id, "steady"]
        assert change.gone == []
        steady.interrupt()
        with trio.fail_after(60):
            while (await anext(changes)).gone != [f"/{run.id}/steady"]:
                pass
    run.end()


async def test_what_is_written_to_a_paused_agent_is_read_when_it_goes_on(agent_runner: AgentRunner, hub: Hub) -> None:
    agent_runner.plain("instructions: be brief\ncan_ask_user: true", "clerk")
    agent_runner.models.script(Reply(calls=[("user__input", {"question": "How?"})]), "as you like")
    info = await hub.start(LOCAL, StartRun(target="clerk", prompt="begin"))
    await until(lambda: hub.questions(LOCAL, info.run))
    path = f"/{info.run}/clerk"
    assert hub.actors.pause(LOCAL, path)
    assert await hub.answer(LOCAL, hub.questions(LOCAL, info.run)[0].id, "well")
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert len(agent_runner.models.requests) == 1
    await hub.actors.send(LOCAL, path, "and in French, please")
    assert hub.actors.resume(LOCAL, path)
    with trio.fail_after(60):
        assert (await hub.wait(LOCAL, info.run)).output == "as you like"
    assert agent_runner.models.requests[-1].json["messages"][-1]["content"] == "and in French, please"


async def test_a_paused_run_can_be_cancelled_and_nobody_stays_paused(
    agent_runner: AgentRunner, hub: Hub, root: callboard.Root
) -> None:
    info = await hub.start(LOCAL, StartRun(target="asks"))
    await until(lambda: hub.questions(LOCAL, info.run))
    assert hub.actors.pause(LOCAL, f"/{info.run}")
    assert hub.actors.pause(LOCAL, f"/{info.run}/asks")
    assert hub.cancel(LOCAL, info.run)
    with trio.fail_after(60):
        assert (await hub.wait(LOCAL, info.run)).status == "cancelled"
    await until(lambda: root.kernel.pauses is None)


async def test_the_schema_is_really_held_against_every_frame(served: Served, root: callboard.Root) -> None:
    run = MadeRun(root, "run-frames")

    async def talk() -> Frames:
        with held_against_the_schema() as frames:
            async with served.connect() as websocket:
                client = Client(websocket)
                await client.result("_run/subscribe", run=run.id)
                await client.until_told("_run/event")
                await client.error("_run/get", run="run-0")
        return frames

    frames = await talk()
    assert frames.seen["_run/subscribe result "] == frames.seen["_run/subscribe params "] == 1
    assert frames.seen["notification _run/event "] >= frames.seen["run.started"] == 1
    frames.goes(None, b'{"jsonrpc":"2.0","method":"_run/ended","params":{"subscription":1}}')
    assert frames.wrong
    run.end()


async def test_a_tool_call_that_is_cancelled_is_told_to_its_agent_which_goes_on(
    agent_runner: AgentRunner, hub: Hub
) -> None:
    agent_runner.plain("instructions: be brief\ncan_ask_user: true", "clerk")
    agent_runner.models.script(Reply(calls=[("user__input", {"question": "How?"})]), "never mind")
    info = await hub.start(LOCAL, StartRun(target="clerk", prompt="begin"))
    await until(lambda: hub.questions(LOCAL, info.run))
    (question,) = hub.questions(LOCAL, info.run)
    assert hub.actors.cancel_actor(LOCAL, question.actor)
    with trio.fail_after(60):
        assert (await hub.wait(LOCAL, info.run)).output == "never mind"
    assert not await hub.answer(LOCAL, question.id, "too late")
    told = agent_runner.models.requests[-1].json["messages"][-1]
    assert told["role"] == "tool"
    assert "cancelled" in told["content"]


async def test_what_is_asked_in_the_very_moment_in_which_the_server_stops_is_refused_and_leaves_nothing(
    line: Line, root: callboard.Root, hub: Hub
) -> None:
    root.begin_stop()
    await line.peer.receive(b'{"jsonrpc":"2.0","id":1,"method":"_run/start","params":{"target":"asks"}}')
    await line.peer.receive(b'{"jsonrpc":"2.0","id":2,"method":"_actor/subscribe"}')
    assert line.sent[0]["error"]["data"]["code"] == "shutting_down"
    assert not hub.actors._watches
    assert not line.peer._under_way
    assert not line.peer._subscriptions
