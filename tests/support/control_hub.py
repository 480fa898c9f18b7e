"""A hub with runs to watch: made ones, whose events the test says itself, and real ones of scripted agents."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import trio
from trio_websocket import WebSocketConnection, open_websocket_url

import callboard
from callboard.actors.front.access.access_control import AccessControl
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.methods import open_hub
from callboard.actors.front.control.runs.live_run import HubOptions
from callboard.actors.front.control.websocket import WebSocketOptions, serve_websocket
from callboard.protocol.control.schema import json_schema
from callboard.protocol.events import LlmDelta, RunFinished, RunStarted
from callboard.protocol.settings.api import ApiSettings
from callboard.supervisors import Actor
from support.waiting import PATIENCE

TOKEN = "a-token-of-the-tests"

ASKS = """
start: ask
nodes:
  ask: {type: input, question: Who is there?, next: end}
  end: {type: end, output: "hello {{ask}}"}
"""


async def _idle(me: Actor) -> None:
    me.started()
    await trio.sleep_forever()


class MadeRun:
    """A run whose events the test says."""

    def __init__(self, root: callboard.Root, id: str) -> None:
        self.id = id
        self._bus = root.bus
        self._stream = root.bus.open(id)
        self.actor = root.kernel.actor.adopt(_idle, (), name=id, bond="watched", stream=self._stream)
        self.actor.emit(RunStarted(target="made", name="made", dialect="agent", prompt="?"))
        self.actor.launch()
        self.said = 0

    def say(self, text: str = "") -> None:
        """One more event."""
        self.said += 1
        self.actor.emit(LlmDelta(text=text or f"word {self.said}"))

    def end(self, output: str = "made") -> None:
        """The last event."""
        outcome = callboard.Outcome(run_id=self.id, status="done", output=output)
        self.actor.emit(RunFinished(outcome=outcome.to_wire()))
        self.actor.interrupt()
        self._bus.close(self._stream)


@contextlib.asynccontextmanager
async def hub_of(
    root: callboard.Root, state: Path, *, redact: Callable[[bytes], bytes] | None = None, **options: Any
) -> AsyncIterator[Hub]:
    """A hub under this root, as an actor `/control` would have it."""
    opened: list[Hub] = []
    up, down = trio.Event(), trio.Event()

    async def control(me: Actor) -> None:
        directory, held = state / "runs", HubOptions(**options)
        async with open_hub(root, directory=directory, options=held, redact=redact) as hub:
            opened.append(hub)
            up.set()
            await down.wait()

    ref = root.kernel.spawn(control, stop_within=3.0)
    with trio.fail_after(PATIENCE):
        await up.wait()
    try:
        yield opened[0]
    finally:
        down.set()
        with trio.move_on_after(PATIENCE, shield=True):
            await ref.wait()


class Served:
    """A server on loopback that serves the websocket and nothing else.

    Attributes:
        port: where.
        clients: actors of the connections.
    """

    def __init__(self, root: callboard.Root, hub: Hub, options: WebSocketOptions | None = None) -> None:
        self.port = 0
        self.clients = 0
        self._root = root
        self._hub = hub
        self._options = options
        self._access = AccessControl(ApiSettings(), local_token=TOKEN, loopback=True)

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._accept, listeners)

    async def _accept(self, stream: trio.SocketStream) -> None:
        async def client(me: Actor) -> None:
            await serve_websocket(me, stream, self._hub, self._access, peer="127.0.0.1", options=self._options)

        self.clients += 1
        try:
            await self._root.kernel.spawn(client, link=False).wait()
        finally:
            self.clients -= 1

    def connect(self, token: str = TOKEN, path: str = "/ws", **options: Any) -> Any:
        """A connection, as an async context manager."""
        headers = [(b"Authorization", f"Bearer {token}".encode())]
        url = f"ws://127.0.0.1:{self.port}{path}"
        return open_websocket_url(url, extra_headers=headers, **options)


class Client:
    """A client that keeps what it is told."""

    def __init__(self, websocket: WebSocketConnection) -> None:
        self.websocket = websocket
        self.told: list[dict[str, Any]] = []
        self.frames: list[tuple[str, dict[str, Any]]] = []
        self._count = 0

    async def call(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The answer to a request; what is told meanwhile is kept in `told`."""
        self._count += 1
        id = self._count
        request = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        await self.websocket.send_message(msgspec.json.encode(request).decode())
        while True:
            frame = await self.frame()
            if frame.get("id") == id:
                self.frames.append((method, frame))
                return frame
            self.told.append(frame)

    async def result(self, method: str, /, **params: Any) -> Any:
        """The result of a request that must not fail."""
        answer = await self.call(method, **params)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, method: str, /, **params: Any) -> tuple[int, str]:
        """Number and text of the error of a request that must fail."""
        answer = await self.call(method, **params)
        assert "error" in answer, answer
        return answer["error"]["code"], answer["error"]["message"]

    async def frame(self) -> dict[str, Any]:
        """The next frame."""
        with trio.fail_after(PATIENCE):
            frame: dict[str, Any] = msgspec.json.decode(await self.websocket.get_message())
        return frame

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Take frames until one is like this; all of them are kept in `told`."""
        for frame in self.told:
            if wanted(frame):
                return frame
        while True:
            frame = await self.frame()
            self.told.append(frame)
            if wanted(frame):
                return frame

    async def until_told(self, method: str) -> dict[str, Any]:
        """The parameters of the first notification of this method."""
        return dict((await self.until(lambda frame: frame.get("method") == method))["params"])

    def seqs(self) -> list[int]:
        """Numbers of the events that it was told."""
        return [frame["params"]["event"]["seq"] for frame in self.told if frame.get("method") == "_run/event"]


SCHEMA = json_schema()
