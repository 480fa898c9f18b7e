"""The websocket: who gets in, and what clients do to it that don't behave."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonschema
import pytest
import trio
import trio.testing
import wsproto
import wsproto.events as ws
from support.agent_runs import AgentRunner
from support.control_hub import SCHEMA, TOKEN, Client, MadeRun, Served
from support.waiting import until
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, open_websocket_url

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.websocket import NO_PONG, WebSocketOptions
from callboard.protocol.control.caller import LOCAL


def _bearer(token: str) -> str:
    return "bearer." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


@pytest.mark.parametrize("path", ["/ws", "/acp", "/ws?x=1"])
async def test_who_has_the_token_gets_in(served: Served, path: str) -> None:
    async with served.connect(path=path) as websocket:
        info = await Client(websocket).result("_server/info")
    assert (info["subject"], info["scopes"], info["protocol"]) == ("local", ["*"], 1)


async def test_a_browser_sends_its_token_as_a_subprotocol(served: Served) -> None:
    url = f"ws://127.0.0.1:{served.port}/ws"
    origin = [(b"Origin", f"http://127.0.0.1:{served.port}".encode())]
    async with open_websocket_url(
        url, subprotocols=["callboard.v1", _bearer(TOKEN)], extra_headers=origin
    ) as websocket:
        assert websocket.subprotocol == "callboard.v1"
        assert await Client(websocket).result("_server/info")


BEARER = ("Authorization", f"Bearer {TOKEN}")


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/ws", [], 401, "unauthorized"),
        ("/ws", [("Authorization", "Bearer wrong")], 401, "unauthorized"),
        ("/ws", [("Authorization", f"Basic {TOKEN}")], 401, "unauthorized"),
        ("/ws", [("Sec-WebSocket-Protocol", "callboard.v1, bearer.%%%")], 401, "unauthorized"),
        ("/ws", [BEARER, ("Origin", "https://evil.example")], 403, "forbidden"),
        ("/ws", [BEARER, ("Origin", "null")], 403, "forbidden"),
        ("/ws", [BEARER, ("Origin", "http://127.0.0.1:1")], 403, "forbidden"),
        ("/other", [BEARER], 404, "not_found"),
    ],
)
async def test_who_may_not_get_in_is_told_why(
    served: Served, path: str, headers: list[tuple[str, str]], status: int, code: str
) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    with pytest.raises(ConnectionRejected) as refused:
        async with open_websocket_url(f"ws://127.0.0.1:{served.port}{path}", extra_headers=raw):
            pass
    assert refused.value.status_code == status
    assert json.loads(refused.value.body or b"{}")["error"]["code"] == code


class Raw:
    """A client that speaks the protocol as badly as the test wants."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.wire = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)

    async def shake_hands(self, host: str = "127.0.0.1") -> ws.Event:
        headers = [(b"Authorization", f"Bearer {TOKEN}".encode())]
        await self.stream.send_all(self.wire.send(ws.Request(host=host, target="/ws", extra_headers=headers)))
        return await self.event()

    async def event(self) -> ws.Event:
        with trio.fail_after(60):
            while True:
                for event in self.wire.events():
                    return event
                data = await self.stream.receive_some(65536)
                self.wire.receive_data(data or None)

    async def send(self, event: ws.Event) -> None:
        await self.stream.send_all(self.wire.send(event))


async def _raw(served: Served) -> Raw:
    raw = Raw(await trio.open_tcp_stream("127.0.0.1", served.port))
    assert isinstance(await raw.shake_hands(), ws.AcceptConnection)
    return raw


async def test_another_host_name_is_refused(served: Served) -> None:
    raw = Raw(await trio.open_tcp_stream("127.0.0.1", served.port))
    async with raw.stream:
        refused = await raw.shake_hands("evil.example")
    assert isinstance(refused, ws.RejectConnection)
    assert refused.status_code == 403


async def test_a_frame_that_is_too_large_closes_the_connection(served: Served) -> None:
    raw = await _raw(served)
    async with raw.stream:
        await raw.send(ws.TextMessage(data="x" * 70_000))
        closed = await raw.event()
    assert isinstance(closed, ws.CloseConnection)
    assert closed.code == 1009
    await until(lambda: not served.clients)


async def test_a_binary_frame_closes_the_connection(served: Served) -> None:
    raw = await _raw(served)
    async with raw.stream:
        await raw.send(ws.BytesMessage(data=b"x"))
        closed = await raw.event()
    assert isinstance(closed, ws.CloseConnection)
    assert closed.code == 1003


async def test_a_frame_that_is_no_json_is_answered_and_the_next_is_heard(client: Client) -> None:
    await client.websocket.send_message("{nonsense")
    assert (await client.frame())["error"]["code"] == -32700
    assert await client.result("_server/info")


@pytest.mark.parametrize(
    "bytes_",
    [b"\x81\xff", b"\x83\x80\0\0\0\0", b"\x81\x85\0\0\0\0\xff\xff\xff\xff\xff", b"\xff" * 40, b"GET / HTTP/1.1\r\n"],
)
async def test_what_is_no_frame_ends_that_connection_only(served: Served, client: Client, bytes_: bytes) -> None:
    raw = await _raw(served)
    await raw.stream.send_all(bytes_)
    await raw.stream.aclose()
    await until(lambda: served.clients == 1)
    assert await client.result("_server/info")


async def test_a_client_that_vanishes_mid_frame_leaves_nothing(
    agent_runner: AgentRunner, served: Served, hub: Hub
) -> None:
    raw = await _raw(served)
    start = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "_run/start", "params": {"target": "asks"}})
    await raw.send(ws.TextMessage(data=start))
    await until(lambda: hub.questions(LOCAL))
    half = raw.wire.send(ws.TextMessage(data=json.dumps({"jsonrpc": "2.0", "id": 2, "method": "_run/list"})))
    await raw.stream.send_all(half[: len(half) // 2])
    await trio.aclose_forcefully(raw.stream)
    await until(lambda: not served.clients)
    (question,) = hub.questions(LOCAL)  # the run is still there, and can be answered by others
    assert await hub.answer(LOCAL, question.id, "x")
    assert (await hub.wait(LOCAL, question.run)).status == "done"


async def _impatient(root: callboard.Root, hub: Hub, nursery: trio.Nursery, pong_within: float) -> Served:
    served = Served(root, hub, WebSocketOptions(ping_every=0.02, pong_within=pong_within))
    await nursery.start(served.serve)
    return served


async def test_a_half_open_connection_is_noticed(root: callboard.Root, hub: Hub, nursery: trio.Nursery) -> None:
    served = await _impatient(root, hub, nursery, 0.05)
    raw = await _raw(served)  # answers no ping from here on
    await until(lambda: not served.clients)
    async with raw.stream:
        while not isinstance(closed := await raw.event(), ws.CloseConnection):
            assert isinstance(closed, ws.Ping)
    assert closed.code == NO_PONG


async def test_a_client_that_answers_pings_stays(
    root: callboard.Root, hub: Hub, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings: list[object] = []
    answered = WebSocketConnection._handle_ping_event

    async def counted(connection: WebSocketConnection, event: ws.Ping) -> None:
        pings.append(event)
        await answered(connection, event)

    monkeypatch.setattr(WebSocketConnection, "_handle_ping_event", counted)  # of the client: servers are not pinged
    served = await _impatient(root, hub, nursery, 30.0)
    async with served.connect() as websocket:
        await until(lambda: len(pings) >= 3)  # the next one comes only after the answer to the last
        assert await Client(websocket).result("_server/info")


async def test_nothing_but_a_connection_is_closed_in_time(
    root: callboard.Root, hub: Hub, nursery: trio.Nursery
) -> None:
    served = Served(root, hub, WebSocketOptions(handshake_within=0.1))
    await nursery.start(served.serve)
    async with await trio.open_tcp_stream("127.0.0.1", served.port) as stream:
        with trio.fail_after(60):
            assert await stream.receive_some(1) == b""


async def test_a_reader_that_stops_costs_a_bounded_buffer_and_not_the_run(
    root: callboard.Root, hub: Hub, served: Served
) -> None:
    run = MadeRun(root, "run-stall")
    raw = await _raw(served)
    subscribe = {"jsonrpc": "2.0", "id": 1, "method": "_run/subscribe", "params": {"run": run.id}}
    await raw.send(ws.TextMessage(data=json.dumps(subscribe)))
    await until(lambda: hub.running.live[run.id]._news)
    async with served.connect() as websocket:
        good = Client(websocket)
        await good.result("_run/subscribe", run=run.id)
        for _ in range(1_000):  # 10 MB, far more than the sockets take
            run.say("x" * 10_000)
            await trio.lowlevel.checkpoint()
        record = hub.running.live[run.id]
        assert len(record.ring) <= 16
        run.end()
        while True:  # the good one loses nothing, if need be with a new subscription
            frame = await good.until(lambda frame: frame.get("method") in ("_run/ended", "_run/lagged"))
            if frame["method"] == "_run/ended":
                break
            good.told.remove(frame)
            await good.result("_run/subscribe", run=run.id, after=frame["params"]["after"])
        assert good.seqs() == list(range(1, 1_004))
    assert (await hub.wait(LOCAL, run.id)).status == "done"
    await trio.aclose_forcefully(raw.stream)
    await until(lambda: not served.clients)


async def test_many_clients_watch_one_run_and_see_the_same(
    root: callboard.Root, hub: Hub, served: Served, nursery: trio.Nursery
) -> None:
    run = MadeRun(root, "run-many")
    seen: list[list[int]] = []

    async def watch() -> None:
        async with served.connect() as websocket:
            client = Client(websocket)
            await client.result("_run/subscribe", run=run.id)
            while (frame := await client.until(lambda f: f.get("method") in ("_run/ended", "_run/lagged")))[
                "method"
            ] != "_run/ended":
                client.told.remove(frame)
                await client.result("_run/subscribe", run=run.id, after=frame["params"]["after"])
            seen.append(client.seqs())

    async with trio.open_nursery() as watching:
        for _ in range(20):
            watching.start_soon(watch)
        await until(lambda: served.clients == 20)
        for _ in range(50):
            run.say()
            await trio.lowlevel.checkpoint()
        run.end()
    assert seen == [list(range(1, 54))] * 20


async def test_a_server_that_stops_says_so(root: callboard.Root, hub: Hub, served: Served) -> None:
    async with served.connect() as websocket:
        assert await Client(websocket).result("_server/info")
        root.begin_stop()
        with trio.fail_after(60), pytest.raises(ConnectionClosed) as closed:
            await websocket.get_message()
    assert closed.value.reason is not None
    assert closed.value.reason.code == 1001


async def test_every_frame_is_as_the_schema_says(
    agent_runner: AgentRunner, client: Client, root: callboard.Root
) -> None:
    frame = jsonschema.Draft202012Validator(SCHEMA)
    await client.result("_question/subscribe")
    await client.result("_actor/subscribe", interval=0.02)
    run = (await client.result("_run/start", target="asks", prompt="p", title="t"))["run"]["run"]
    await client.result("_run/subscribe", run=run)
    asked = await client.until_told("_question/asked")
    for method, params in (
        ("_server/info", {}),
        ("_target/list", {}),
        ("_run/list", {}),
        ("_run/get", {"run": run}),
        ("_run/graph", {"run": run}),
        ("_run/events", {"run": run}),
        ("_actor/tree", {}),
        ("_actor/inspect", {"path": f"/{run}/asks/ask"}),
        ("_actor/pause", {"path": f"/{run}"}),
        ("_actor/resume", {"path": f"/{run}"}),
        ("_question/list", {}),
        ("_mcp/status", {}),
        ("_usage/read", {"by": ["model"], "days": 7}),
        ("_question/answer", {"question": asked["question"]["id"], "value": "x"}),
    ):
        await client.result(method, **params)
    await client.until_told("_run/ended")
    await client.until_told("_question/closed")
    await client.until_told("_actor/changed")
    await client.error("_run/get", run="run-0")
    await client.error("_run/cancel", run="..")
    await client.result("_run/delete", run=run)
    told = {each["method"] for each in client.told}
    assert told == {"_run/event", "_run/ended", "_question/asked", "_question/closed", "_actor/changed"}
    for each in client.told:
        frame.validate(each)
        _validate(f"notification {each['method']}", each["params"])
    for method, each in client.frames:
        frame.validate(each)
        if "result" in each:
            _validate(f"{method} result", each["result"])


def _validate(name: str, value: Any) -> None:
    jsonschema.Draft202012Validator({**SCHEMA["$defs"][name], "$defs": SCHEMA["$defs"]}).validate(value)
