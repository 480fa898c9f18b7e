"""What is on its way to a client: whole frames, few writes, and nothing half done whoever is cancelled."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
import wsproto
import wsproto.events as ws
from support.control_hub import TOKEN, Client, MadeRun, Served
from support.waiting import until

import callboard
from callboard.actors.front.control import websocket
from callboard.actors.front.control.hub import Hub


class Reader:
    """A client that reads when it is told to."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._wire = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._text = ""

    async def shake_hands(self) -> None:
        headers = [(b"Authorization", f"Bearer {TOKEN}".encode())]
        await self.stream.send_all(
            self._wire.send(ws.Request(host="127.0.0.1", target="/ws?max_frame=0", extra_headers=headers))
        )
        while not any(isinstance(event, ws.AcceptConnection) for event in self._wire.events()):
            self._wire.receive_data(await self.stream.receive_some(65536))

    async def ask(self, id: int, method: str, **params: Any) -> None:
        request = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        await self.stream.send_all(self._wire.send(ws.TextMessage(data=json.dumps(request))))

    async def until_closed(self) -> int:
        """The code it is closed with."""
        with trio.fail_after(60):
            while True:
                for event in self._wire.events():
                    if isinstance(event, ws.CloseConnection):
                        return int(event.code)
                data = await self.stream.receive_some(1 << 20)
                assert data, "the connection was cut without a word"
                self._wire.receive_data(data)

    async def until_answer(self, id: int) -> list[dict[str, Any]]:
        """All frames up to an answer."""
        frames: list[dict[str, Any]] = []
        with trio.fail_after(60):
            while True:
                for event in self._wire.events():
                    assert isinstance(event, ws.TextMessage), event
                    self._text += event.data
                    if event.message_finished:
                        frames.append(json.loads(self._text))
                        self._text = ""
                if any(frame.get("id") == id for frame in frames):
                    return frames
                data = await self.stream.receive_some(1 << 20)
                assert data, "the connection was closed"
                self._wire.receive_data(data)


async def test_a_subscription_that_is_ended_amid_a_frame_leaves_the_others_readable(
    root: callboard.Root, hub: Hub, served: Served
) -> None:
    run = MadeRun(root, "run-torn")
    async with await trio.open_tcp_stream("127.0.0.1", served.port) as stream:
        reader = Reader(stream)
        await reader.shake_hands()
        await reader.ask(1, "_run/subscribe", run=run.id)
        await until(lambda: hub.running.live[run.id]._news)
        (subscription,) = hub.logs.readers
        run.say("x" * 16_000_000)  # more than the sockets hold: the writer stands in the middle of it
        await until(lambda: subscription.seq == 3)
        run.say()
        await trio.testing.wait_all_tasks_blocked(0.05)
        await reader.ask(2, "_run/unsubscribe", subscription="s1")
        await trio.testing.wait_all_tasks_blocked(0.05)
        await reader.ask(3, "_server/info")
        frames = await reader.until_answer(3)
    assert {"unsubscribed": True} in [frame.get("result") for frame in frames]
    told = [frame["params"]["event"]["seq"] for frame in frames if frame.get("method") == "_run/event"]
    assert told == [1, 2, 3]
    run.end()


async def test_events_that_come_at_once_are_one_write(
    root: callboard.Root, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = MadeRun(root, "run-burst")
    async with served.connect() as websocket:
        client = Client(websocket)
        await client.result("_run/subscribe", run=run.id)
        await client.until(lambda frame: frame.get("method") == "_run/event")
        await trio.testing.wait_all_tasks_blocked(0.01)
        writes: list[int] = []
        real = trio.SocketStream.send_all

        async def counted(stream: trio.SocketStream, data: bytes) -> None:
            writes.append(len(data))
            await real(stream, data)

        monkeypatch.setattr(trio.SocketStream, "send_all", counted)
        for _ in range(15):
            run.say()
        await client.until(lambda frame: frame.get("method") == "_run/event" and frame["params"]["event"]["seq"] == 17)
        assert len(writes) <= 2
        assert client.seqs() == list(range(1, 18))
    run.end()


@pytest.mark.parametrize("size", [1, 100, 125, 126, 60_000, 70_000])
async def test_a_frame_of_any_size_arrives_as_it_was_sent(root: callboard.Root, served: Served, size: int) -> None:
    run = MadeRun(root, f"run-size{size}")
    async with served.connect() as websocket:
        client = Client(websocket)
        for number in range(3):
            run.say("é" * (size + number))
        run.end()
        await client.result("_run/subscribe", run=run.id)
        await client.until_told("_run/ended")
        texts = [
            frame["params"]["event"]["data"]["text"]
            for frame in client.told
            if frame["method"] == "_run/event" and frame["params"]["event"]["kind"] == "llm.delta"
        ]
    assert texts == ["é" * (size + number) for number in range(3)]


async def test_what_is_on_its_way_still_goes_out_when_the_server_stops(
    root: callboard.Root, hub: Hub, served: Served
) -> None:
    run = MadeRun(root, "run-last")
    async with served.connect() as websocket:
        client = Client(websocket)
        await client.result("_run/subscribe", run=run.id)
        await client.until(lambda frame: frame.get("method") == "_run/event")
        await trio.testing.wait_all_tasks_blocked(0.01)
        run.end()
        await until(lambda: hub.running.live.get(run.id) is None)
        root.begin_stop()
        assert (await client.until_told("_run/ended"))["status"] == "done"


async def test_who_is_closed_amid_a_frame_is_told_why_behind_it(
    root: callboard.Root, hub: Hub, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_WITHIN", 30.0)
    stay = trio.CancelScope()
    monkeypatch.setattr(served._access, "connection", lambda _: stay)
    run = MadeRun(root, "run-closed")
    async with await trio.open_tcp_stream("127.0.0.1", served.port) as stream:
        reader = Reader(stream)
        await reader.shake_hands()
        await reader.ask(1, "_run/subscribe", run=run.id)
        await until(lambda: hub.running.live[run.id]._news)
        (subscription,) = hub.logs.readers
        run.say("x" * 16_000_000)  # more than the sockets hold: the writer stands in the middle of it
        await until(lambda: subscription.seq == 3)
        await trio.testing.wait_all_tasks_blocked(0.05)
        stay.cancel()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert await reader.until_closed() == 1008
    run.end()
