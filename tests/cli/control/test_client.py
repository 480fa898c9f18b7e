"""The client of the control websocket: requests, refusals, connections that are lost and found again."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.messages import says
from support.scripted_control_server import Refuse, SmallServer
from support.waiting import until
from trio_websocket import WebSocketConnection

from callboard.cli.control.client import PATIENCE, ControlClient, open_client
from callboard.protocol.control import method_structs
from callboard.protocol.errors import (
    CallboardError,
    Denied,
    NoServer,
    Saturated,
    ServerLost,
    Unauthorized,
    Unsupported,
)


async def cut(small: SmallServer, client: ControlClient) -> None:
    """Cut the connection, and wait until the client knows."""
    connection = await client.connected()
    await small.drop()
    await until(lambda: connection.lost)


async def test_requests_under_way_get_each_its_own_answer(small: SmallServer, client: ControlClient) -> None:
    small.answers["_run/list"] = lambda params: {"runs": [{"run": params["before"]}]}
    got: dict[str, str] = {}

    async def ask(name: str) -> None:
        got[name] = (await client.ask("_run/list", method_structs.Runs, before=name)).runs[0].run

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, f"run-{number}")
    assert got == {f"run-{number}": f"run-{number}" for number in range(20)}
    assert len(small.tokens) == 1
    assert small.tokens[0] == "Bearer t"


async def test_what_is_not_given_is_not_sent(small: SmallServer, client: ControlClient) -> None:
    small.answers["_actor/tree"] = lambda _: {"actors": []}
    await client.ask("_actor/tree", method_structs.Actors, run=None)
    assert await small.heard("_actor/tree") == [{}]


@pytest.mark.parametrize(("code", "exit_code"), [("not_found", 2), ("forbidden", 3), ("saturated", 6), ("new_one", 1)])
async def test_a_refusal_is_the_error_that_it_was_at_the_server(
    small: SmallServer, client: ControlClient, code: str, exit_code: int
) -> None:
    def refuse(_: Any) -> Any:
        raise Refuse(code, "no run 'x'")

    small.answers["_run/get"] = refuse
    with pytest.raises(CallboardError, match="no run 'x'") as caught:
        await client.ask("_run/get", method_structs.OneRun, run="x")
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)


async def test_an_answer_of_another_shape_is_told(small: SmallServer, client: ControlClient) -> None:
    small.answers["_run/get"] = lambda _: {"run": 7}
    with pytest.raises(ServerLost, match=says("cli.control.client.ControlClient._read")):
        await client.ask("_run/get", method_structs.OneRun, run="x")


@pytest.mark.parametrize(
    ("status", "error", "text"),
    [
        (401, Unauthorized, says("cli.control.connection._rejected.2")),
        (403, Denied, says("cli.control.connection._rejected.4", said=": not now")),
        (503, Saturated, says("cli.control.connection._rejected.5", said=": not now")),
        (404, NoServer, says("cli.control.connection._rejected.6", status=404)),
    ],
)
async def test_a_handshake_that_is_refused_says_why(
    small: SmallServer, client: ControlClient, status: int, error: type[CallboardError], text: str
) -> None:
    small.refuse = status
    with pytest.raises(error, match=text):
        await client.connected()


async def test_another_version_of_the_protocol_is_refused_by_us(small: SmallServer, client: ControlClient) -> None:
    small.answers["_server/info"] = lambda _: {"protocol": 2}
    with pytest.raises(Unsupported, match=says("cli.control.connection.open_connection.3", protocol=2, VERSION=1)):
        await client.connected()


async def test_nobody_at_the_address_is_no_server(small: SmallServer) -> None:
    listener = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = small.server
    port = listener[0].socket.getsockname()[1]
    await listener[0].aclose()
    async with open_client(type(server)(url="u", host="127.0.0.1", port=port, path="/ws")) as client:
        with pytest.raises(NoServer, match=says("cli.control.connection._hold.2", url="u")):
            await client.connected()


async def test_something_else_at_the_address_is_no_server(small: SmallServer, nursery: trio.Nursery) -> None:
    async def chat(stream: trio.SocketStream) -> None:
        await stream.send_all(b"220 mail.example ESMTP\r\n")
        await stream.aclose()

    listeners = await nursery.start(
        lambda task_status: trio.serve_tcp(chat, 0, host="127.0.0.1", task_status=task_status)
    )
    port = listeners[0].socket.getsockname()[1]
    async with open_client(type(small.server)(url="u", host="127.0.0.1", port=port, path="/ws")) as client:
        with pytest.raises(NoServer, match=says("cli.control.connection._hold")):
            await client.connected()


async def test_a_request_whose_connection_is_cut_fails_and_the_next_connects_again(
    small: SmallServer, client: ControlClient
) -> None:
    told: list[str] = []
    client.tell = told.append
    small.answers["_run/list"] = lambda _: {"runs": []}
    connection = await client.connected()
    await small.drop()
    with pytest.raises(ServerLost):
        await connection.request("_run/list", {})
    assert (await client.ask("_run/list", method_structs.Runs)).runs == []
    assert len(small.tokens) == 2
    assert told == []


async def test_a_server_that_comes_back_is_found_and_both_are_told(
    small: SmallServer, client: ControlClient, quick_clock: trio.testing.MockClock
) -> None:
    told: list[str] = []
    client.tell = told.append
    await client.connected()
    small.refuse = 503
    await cut(small, client)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.connected)
        while len(small.tokens) < 4:
            await trio.sleep(0.1)
        small.refuse = None
    assert [text.split()[0] for text in told] == ["the", "connected"]


async def test_patience_with_a_server_that_stays_away_has_an_end(
    small: SmallServer, client: ControlClient, quick_clock: trio.testing.MockClock
) -> None:
    await client.connected()
    small.refuse = 503
    await cut(small, client)
    begun = trio.current_time()
    with pytest.raises(ServerLost, match=says("cli.control.client.ControlClient._again.2", PATIENCE=30)):
        await client.connected()
    assert trio.current_time() - begun <= PATIENCE + 12


async def test_a_server_whose_process_has_ended_is_not_waited_for(small: SmallServer) -> None:
    gone = type(small.server)(url="u", host="127.0.0.1", port=small.port, path="/ws", pid=2**22 + 1)
    async with open_client(gone) as client:
        await client.connected()
        small.refuse = 503
        await cut(small, client)
        with pytest.raises(ServerLost, match=says("cli.control.client.ControlClient._again")):
            await client.connected()


async def test_a_server_that_answers_no_ping_is_lost(
    client: ControlClient, quick_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(*_: Any) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(WebSocketConnection, "_handle_ping_event", deaf)  # only servers are pinged here
    connection = await client.connected()
    with trio.fail_after(60):
        while not connection.lost:
            await trio.sleep(1)
