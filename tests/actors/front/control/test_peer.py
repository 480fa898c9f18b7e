"""One connection: whatever comes, it is answered as JSON-RPC says, and never breaks anything else."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agent_runs import AgentRunner
from support.control_hub import MadeRun, hub_of
from support.messages import has_message
from support.waiting import until

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.methods import METHODS, Method
from callboard.actors.front.control.peer import ControlPeer
from callboard.actors.io.outbox import PeerClosed
from callboard.actors.io.secret_redaction import handed_out
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.control.errors import Refused
from callboard.protocol.control.method_structs import Nothing
from callboard.protocol.errors import InvalidFile
from callboard.protocol.problems import Problem
from callboard.supervisors import Actor


class Line:
    """A connection whose client is the test.

    Attributes:
        sent: frames for the client, decoded.
        clogged: while it is set, nothing is taken from the server.
    """

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.clogged = False
        self.gone = False
        self.peer: ControlPeer
        self._lot = trio.lowlevel.ParkingLot()

    async def send(self, frame: bytes) -> None:
        if self.gone:
            raise PeerClosed
        while self.clogged:
            await self._lot.park()
        self.sent.append(msgspec.json.decode(frame))
        await trio.lowlevel.checkpoint()

    def unclog(self) -> None:
        self.clogged = False
        self._lot.unpark_all()

    async def put(self, id: Any, method: str, **params: Any) -> None:
        await self.peer.receive(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode())

    async def answer(self, id: Any) -> dict[str, Any]:
        await until(lambda: any(frame.get("id") == id for frame in self.sent))
        (found,) = [frame for frame in self.sent if frame.get("id") == id]
        return found

    def told(self, method: str) -> list[dict[str, Any]]:
        return [frame["params"] for frame in self.sent if frame.get("method") == method]


def _line(root: callboard.Root, hub: Hub, caller: Caller = LOCAL) -> Line:
    line = Line()

    async def client(me: Actor) -> None:
        line.peer = ControlPeer(me, hub, caller, line.send)
        me.started()
        await trio.sleep_forever()

    root.kernel.spawn(client, link=False)
    return line


@pytest.fixture
async def line(root: callboard.Root, hub: Hub) -> AsyncIterator[Line]:
    line = _line(root, hub)
    await trio.testing.wait_all_tasks_blocked()
    yield line
    line.peer.close()


BAD = [
    (b"", -32700),
    (b"{", -32700),
    (b"\xff\xfe", -32700),
    (b'"x"', -32600),
    (b"[]", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"_server/info"}]', -32600),
    (b"{}", -32600),
    (b'{"id":1.5,"method":"_server/info"}', -32600),
    (b'{"id":1,"method":7}', -32600),
    (b'{"id":1,"method":"_nothing"}', -32601),
    (b'{"id":1,"method":"_run/get"}', -32602),
    (b'{"id":1,"method":"_run/get","params":[1]}', -32602),
    (b'{"id":1,"method":"_run/get","params":{"run":"\xff"}}', -32602),
    (b'{"id":1,"method":"_run/get","params":{"run":"run-1","more":1}}', -32602),
    (b'{"id":1,"method":"_run/get","params":{"run":"run-1"}}', -32004),
    (b'{"id":1,"method":"_run/list","params":{"limit":0}}', -32602),
    (b'{"id":1,"method":"_run/start","params":{"target":"nobody"}}', -32011),
]


@pytest.mark.parametrize(("frame", "number"), BAD)
async def test_what_is_wrong_is_told_by_number(line: Line, frame: bytes, number: int) -> None:
    await line.peer.receive(frame)
    await until(lambda: line.sent)
    assert [each["error"]["code"] for each in line.sent] == [number]
    await line.put(2, "_server/info")
    assert "result" in await line.answer(2)


async def test_a_wrong_name_gets_a_hint_and_a_wrong_field_its_path(line: Line) -> None:
    await line.put(1, "_run/lst")
    await line.put(2, "_run/subscribe", run="run-1", after="x")
    assert has_message((await line.answer(1))["error"]["message"], "protocol.problems.suggestion", name="_run/list")
    assert (await line.answer(2))["error"]["message"].endswith("Expected `int`, got `str` - at `$.after`")


async def test_errors_say_nothing_that_the_vault_has_handed_out(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_out("supersecretvalue")
    problem = Problem(severity="error", file="mcp.json", code="bad", message="no server supersecretvalue")

    def refuse(*_: object, **_more: object) -> None:
        raise InvalidFile("mcp.json: supersecretvalue", [problem])

    monkeypatch.setattr(Hub, "read_run", refuse)
    await line.put(1, "_run/get", run="run-1")
    error = (await line.answer(1))["error"]
    assert error["message"] == "mcp.json: [redacted]"
    assert "no server [redacted]" in error["data"]["problems"][0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
QUIET = sorted(name for name in METHODS if name not in ("_mcp/status", "_mcp/reload", "_target/list"))
FRAMES = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.just("2.0") | JSON,
            "id": st.integers(0, 5) | JSON,
            "method": st.sampled_from([*QUIET, "$/cancel_request"]) | st.text(max_size=10),
            "params": st.dictionaries(
                st.sampled_from(["run", "after", "limit", "path", "question", "value", "subscription", "requestId"]),
                st.sampled_from(["run-fuzz", "..", "s1", "/run-fuzz", "/"]) | JSON,
                max_size=3,
            )
            | JSON,
            "result": JSON,
            "error": JSON,
        },
    ).map(lambda value: json.dumps(value).encode()),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(FRAMES, min_size=20, max_size=40))
def test_no_frame_crashes_anything(frames: list[bytes]) -> None:
    trio.run(_survives, frames)


@pytest.mark.soak
@settings(max_examples=500, deadline=None)
@given(st.lists(FRAMES, min_size=20, max_size=40))
def test_no_frame_crashes_anything_often(frames: list[bytes]) -> None:
    trio.run(_survives, frames)


async def _survives(frames: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as place:
        config = Path(place) / "config"
        async with callboard.Root(config_dir=config, wait_for_front_end=True) as root, hub_of(root, Path(place)) as hub:
            line = _line(root, hub)
            run = MadeRun(root, "run-fuzz")
            await trio.testing.wait_all_tasks_blocked()
            for frame in frames:
                await line.peer.receive(frame)
                run.say()
            await line.put("last", "_server/info")
            assert "result" in await line.answer("last")
            assert not [each for each in line.sent if each.get("error", {}).get("code") == -32603], line.sent
            line.peer.close()
            await trio.testing.wait_all_tasks_blocked()
            run.end()


async def test_a_request_that_takes_its_time_can_be_cancelled(line: Line, hub: Hub) -> None:
    began, ended = trio.Event(), trio.Event()

    async def slow(_peer: ControlPeer, _params: Nothing) -> None:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    hub.methods["_test/slow"] = Method(Nothing, Nothing, slow)
    await line.put(1, "_test/slow")
    await began.wait()
    await line.put(1, "_server/info")
    assert has_message(line.sent[0]["error"]["message"], "io.peer.Peer._check.2")
    line.sent.clear()
    await line.peer.receive(b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}')
    assert (await line.answer(1))["error"]["code"] == -32800
    with trio.fail_after(60):
        await ended.wait()
    assert len(line.sent) == 1


async def test_requests_under_way_are_bounded(line: Line, hub: Hub) -> None:
    async def slow(_peer: ControlPeer, _params: Nothing) -> None:
        await trio.sleep_forever()

    hub.methods["_test/slow"] = Method(Nothing, Nothing, slow)
    for number in range(ControlPeer.most + 1):
        await line.put(number, "_test/slow")
    assert (await line.answer(ControlPeer.most))["error"]["code"] == -32010


async def test_a_bug_of_ours_shows_nothing_of_itself(line: Line, hub: Hub) -> None:
    def crash(_peer: ControlPeer, _params: Nothing) -> None:
        raise ZeroDivisionError("secret")

    hub.methods["_test/crash"] = Method(Nothing, Nothing, crash)
    await line.put(1, "_test/crash")
    error = (await line.answer(1))["error"]
    assert error["code"] == -32603
    assert "secret" not in str(error)


async def test_the_server_asks_and_the_client_answers_or_refuses(line: Line) -> None:
    answers: dict[str, Any] = {}

    async def ask(method: str) -> None:
        try:
            answers[method] = await line.peer.request(method, {})
        except Refused as error:
            answers[method] = str(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "one")
        nursery.start_soon(ask, "two")
        nursery.start_soon(ask, "three")
        await until(lambda: len(line.sent) == 3)
        ids = {frame["method"]: frame["id"] for frame in line.sent}
        await line.peer.receive(json.dumps({"id": ids["one"], "result": {"x": 1}}).encode())
        await line.peer.receive(json.dumps({"id": ids["two"], "error": {"code": 1, "message": "no"}}).encode())
        await line.peer.receive(b'{"id": "nobody", "result": 1}')
        await until(lambda: len(answers) == 2)
        line.peer.close()
    assert answers == {"one": {"x": 1}, "two": "no", "three": "the client has disconnected"}


async def test_a_clogged_client_is_told_that_it_lagged_and_costs_the_run_nothing(
    root: callboard.Root, line: Line
) -> None:
    run = MadeRun(root, "run-clog")
    await line.put(1, "_run/subscribe", run=run.id)
    await until(lambda: len(line.told("_run/event")) == 2)
    line.clogged = True
    for _ in range(1000):
        run.say()
    await trio.testing.wait_all_tasks_blocked()
    line.unclog()
    await until(lambda: line.told("_run/lagged"))
    (lagged,) = line.told("_run/lagged")
    seen = [params["event"]["seq"] for params in line.told("_run/event")]
    assert seen == list(range(1, lagged["after"] + 1))
    assert len(seen) < 100
    run.end()
    await line.put(2, "_run/subscribe", run=run.id, after=lagged["after"])
    await until(lambda: line.told("_run/ended"))
    seen = [params["event"]["seq"] for params in line.told("_run/event")]
    assert seen == list(range(1, 1004))
    assert line.told("_run/ended")[0]["status"] == "done"


async def test_a_subscription_can_be_ended(root: callboard.Root, line: Line) -> None:
    run = MadeRun(root, "run-unsub")
    await line.put(1, "_run/subscribe", run=run.id)
    id = (await line.answer(1))["result"]["subscription"]
    await line.put(2, "_run/unsubscribe", subscription=id)
    await line.put(3, "_run/unsubscribe", subscription=id)
    assert (await line.answer(2))["result"] == {"unsubscribed": True}
    assert (await line.answer(3))["result"] == {"unsubscribed": False}
    await trio.testing.wait_all_tasks_blocked()
    before = len(line.told("_run/event"))
    run.say()
    await trio.testing.wait_all_tasks_blocked()
    assert len(line.told("_run/event")) == before
    run.end()


async def test_a_client_that_is_gone_leaves_nothing(root: callboard.Root, hub: Hub, line: Line) -> None:
    run = MadeRun(root, "run-gone")
    await line.put(1, "_run/subscribe", run=run.id)
    await line.put(2, "_question/subscribe")
    await line.put(3, "_actor/subscribe")
    await trio.testing.wait_all_tasks_blocked()
    line.gone = True
    run.say()
    await trio.testing.wait_all_tasks_blocked()
    line.peer.close()
    await until(lambda: not line.peer.me.child_count)
    assert not hub.shown._feeds
    assert not hub.actors._watches
    run.end()
    assert (await hub.wait(LOCAL, run.id)).status == "done"


async def test_many_clients_answer_and_exactly_one_is_the_first(
    agent_runner: AgentRunner, root: callboard.Root, hub: Hub
) -> None:
    lines = [_line(root, hub, Caller("local", frozenset({"*"}), name=f"c{number}")) for number in range(10)]
    await trio.testing.wait_all_tasks_blocked()
    for line in lines:
        await line.put(1, "_question/subscribe")
    await lines[0].put(2, "_run/start", target="asks")
    run = (await lines[0].answer(2))["result"]["run"]["run"]
    for line in lines:
        await until(lambda line=line: line.told("_question/asked"))
    question = lines[0].told("_question/asked")[0]["question"]["id"]
    async with trio.open_nursery() as nursery:
        for line in lines:
            nursery.start_soon(lambda line=line: line.put(3, "_question/answer", question=question, value="x"))
    won = [number for number, line in enumerate(lines) if (await line.answer(3))["result"]["answered"]]
    assert len(won) == 1
    for line in lines:
        await until(lambda line=line: line.told("_question/closed"))
        assert line.told("_question/closed")[0]["by"] == f"c{won[0]}"
    assert (await hub.wait(LOCAL, run)).status == "done"
    for line in lines:
        line.peer.close()


async def test_the_error_for_a_reused_id_does_not_end_the_request_that_has_it(line: Line, hub: Hub) -> None:
    release = trio.Event()

    async def slow() -> Nothing:
        await release.wait()
        return Nothing()

    hub.methods["_test/slow"] = Method(Nothing, Nothing, lambda _peer, _params: slow())
    await line.put(1, "_test/slow")
    await line.put(1, "_test/slow")
    error = (await line.answer(None))["error"]
    assert (error["code"], error["data"]) == (-32600, {"code": "usage", "id": 1})
    release.set()
    assert "result" in await line.answer(1)
