"""Runs of the hub that are turns of a session."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.agent_runs import AgentRunner
from support.control_hub import Client, hub_of
from support.fake_models import FakeModels, Reply

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.runs.session_run import say
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.control.method_structs import StartRun
from callboard.protocol.errors import Denied
from callboard.protocol.requests import RunRequest


async def test_runs_of_a_session_are_its_turns_one_after_another(
    hub: Hub, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.plain("", name="clerk")
    fake_model.answer_with(lambda request: f"re: {request.prompt}")
    runs = []
    async with trio.open_nursery() as nursery:

        async def start(number: int) -> None:
            wanted = StartRun(target="clerk", prompt=f"msg-{number}", session="work")
            runs.append(await hub.start(LOCAL, wanted))

        for number in range(10):
            nursery.start_soon(start, number)
    for run in runs:
        await hub.wait(LOCAL, run.run)
        await hub.sessions.wait_stored(run.run)
    stored = await hub.root.sessions.get(None, "work", agent="clerk")
    assert {run.session for run in runs} == {stored.id}
    assert len(stored.session.messages) == 20
    said = [message["content"] for message in stored.session.messages]
    assert all(answer == f"re: {asked}" for asked, answer in zip(said[::2], said[1::2], strict=True))


async def test_the_end_of_the_hub_keeps_what_was_said(
    root: callboard.Root, agent_runner: AgentRunner, fake_model: FakeModels, tmp_path: Path
) -> None:
    agent_runner.plain("global_tools: [fs_ls]", name="clerk")
    fake_model.script(Reply(text="looking", calls=[("fs_ls", {"path": "."})]))
    fake_model.answer_with(lambda _: Reply(hold=trio.Event()))
    async with hub_of(root, tmp_path / "state") as hub:
        await hub.start(LOCAL, StartRun(target="clerk", prompt="go", session="work"))
        while len(fake_model.requests) < 2:
            await trio.sleep(0.005)
    with trio.fail_after(60):
        while not (stored := await root.sessions.get(None, "work", agent="clerk")).session.messages:
            await trio.sleep(0.01)
    assert [message["role"] for message in stored.session.messages] == ["user", "tool"]


async def test_who_gives_up_a_turn_that_has_not_begun_leaves_nothing(
    hub: Hub, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    agent_runner.plain("", name="clerk")
    made = await hub.root.sessions.create(None, agent="clerk")
    async with hub.root.sessions.turn(None, made.id):
        with trio.move_on_after(0.05) as patience:
            await hub.start(LOCAL, StartRun(target="clerk", prompt="go", session=made.id))
    assert patience.cancelled_caught
    async with hub.root.sessions.turn(None, made.id):
        assert hub.list(LOCAL) == []
    assert fake_model.requests == []


async def test_a_session_needs_its_scope(hub: Hub, agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    with pytest.raises(Denied, match="write:sessions"):
        await hub.start(Caller("bob", frozenset({"run:agents"})), StartRun(target="clerk", prompt="x", session="y"))


async def test_the_methods_of_sessions_answer_on_the_websocket(client: Client, hub: Hub) -> None:
    await say(hub.root, None, "x", RunRequest(prompt="hi"))
    (listed,) = (await client.result("_session/list"))["sessions"]
    assert (listed["alias"], listed["title"]) == ("x", "hi")
    got = await client.result("_session/get", session="x")
    assert [message["content"] for message in got["messages"]] == ["hi", "ok"]
    assert (await client.result("_session/rename", session="x", alias="y"))["session"]["alias"] == "y"
    assert (await client.result("_session/set_role", session="y", role="code"))["session"]["role"] == "code"
    assert (await client.result("_session/set_role", session="y", role=None))["session"]["role"] is None
    assert (await client.result("_session/export", session="y"))["text"].startswith("# hi")
    assert (await client.result("_session/compress", session="y"))["compressed"] is True
    await client.result("_session/empty", session=listed["id"])
    await client.result("_session/delete", session=listed["id"])
    assert (await client.result("_session/list"))["sessions"] == []


async def test_an_agent_that_is_always_run_in_a_session_is_so_for_the_person_at_this_machine(
    client: Client, hub: Hub, agent_runner: AgentRunner
) -> None:
    agent_runner.plain("agent_session: diary", name="clerk")
    agent_runner.plain("agent_session: temp", name="fleeting")
    run = (await client.result("_run/start", target="clerk", prompt="one"))["run"]
    await hub.wait(LOCAL, run["run"])
    await hub.sessions.wait_stored(run["run"])
    stored = await hub.root.sessions.get(None, "diary", agent="clerk")
    assert run["session"] == stored.id
    for name, session in (("clerk", ""), ("fleeting", None)):
        again = (await client.result("_run/start", target=name, prompt="two", session=session))["run"]
        assert again.get("session") is None
        await hub.wait(LOCAL, again["run"])
    placed = hub.sessions.placed
    guest = Caller("ann", frozenset({"run:agents", "write:sessions"}))
    assert (await placed(guest, StartRun(target="clerk", prompt="x"))).session is None
    nobody = Caller("local", frozenset({"write:sessions"}))
    with pytest.raises(Denied):
        await placed(nobody, StartRun(target="clerk", prompt="x"))
    assert len((await hub.root.sessions.get(None, "diary", agent="clerk")).session.messages) == 2
