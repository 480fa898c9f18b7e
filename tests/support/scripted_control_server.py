"""A server of the control channel that does as the test says: what a real one does too seldom to be waited for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

from callboard.cli.control.servers import ControlServer
from callboard.protocol.events import Event, encode
from support.waiting import PATIENCE

Json = Any
Answer = Callable[[dict[str, Any]], Json]


class Refuse(Exception):
    """Raised by an answer: the request fails with this code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SmallServer:
    """Answers requests by functions of their params, one per method.

    Attributes:
        answers: those functions.
        asked: every request so far: method and params.
        sockets: the connections that are open.
        tokens: the Authorization headers of the handshakes.
        refuse: the HTTP status of the next handshakes; None to accept them.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {"_server/info": lambda _: {"protocol": 1}}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.sockets: list[WebSocketConnection] = []
        self.tokens: list[str] = []
        self.refuse: int | None = None
        self.port = 0
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def server(self) -> ControlServer:
        """What a client connects to."""
        return ControlServer(
            url=f"http://127.0.0.1:{self.port}", host="127.0.0.1", port=self.port, path="/ws", token="t"
        )

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(
                lambda task_status: serve_websocket(
                    self._accept, "127.0.0.1", self.port, ssl_context=None, task_status=task_status
                )
            )
            self.port = listening.port
            task_status.started()

    async def _accept(self, request: WebSocketRequest) -> None:
        headers = dict(request.headers)
        self.tokens.append(headers.get(b"authorization", b"").decode())
        if self.refuse is not None:
            await request.reject(self.refuse, body=b'{"error": {"code": "x", "message": "not now"}}')
            return
        socket = await request.accept()
        self.sockets.append(socket)
        try:
            while True:
                await self._answer(socket, json.loads(await socket.get_message()))
        except ConnectionClosed:
            pass
        finally:
            self.sockets.remove(socket)

    async def _answer(self, socket: WebSocketConnection, request: Json) -> None:
        method, params = request["method"], request["params"]
        reply: Json = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = self.answers[method](params)
        except Refuse as error:
            reply["error"] = {"code": -32011, "message": str(error), "data": {"code": error.code}}
        await socket.send_message(json.dumps(reply))
        self.asked.append((method, params))
        self._changed.unpark_all()

    async def heard(self, method: str, times: int = 1) -> list[dict[str, Any]]:
        """The params of the requests of this method, once there were as many."""
        with trio.fail_after(PATIENCE):
            while len(found := [params for name, params in self.asked if name == method]) < times:
                await self._changed.park()
        return found

    async def tell(self, method: str, **params: Json) -> None:
        """A notification to the newest connection."""
        text = msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}).decode()
        await self.sockets[-1].send_message(text)

    async def event(self, event: Event, subscription: str) -> None:
        """An event of a run."""
        await self.tell("_run/event", subscription=subscription, run=event.run, event=msgspec.Raw(encode(event)))

    async def drop(self) -> None:
        """Cut all connections without a word."""
        for socket in list(self.sockets):
            await socket._stream.aclose()
