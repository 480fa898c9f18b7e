"""A server of the page that says what a test tells it to: the frames of the control channel over trio-websocket.

For what a real run can't be made to do at will: a thousand actors, a hundred thousand events, a reader that lags, a
connection that breaks. What the page sees of real runs is in tests/actors/front/page/.
"""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import trio
import trio_websocket

from callboard.actors.front.page import HEADERS, asset
from support.fake_models import listening

Json = Any
TOKEN = "s3cret/+token"


class Rest(trio.abc.Stream):
    """A stream of which the beginning has been read already."""

    def __init__(self, beginning: bytes, stream: trio.SocketStream) -> None:
        self.beginning, self.stream = beginning, stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self.beginning:
            beginning, self.beginning = self.beginning, b""
            return beginning
        return await self.stream.receive_some(max_bytes)

    async def send_all(self, data: bytes) -> None:  # type: ignore[override]  # trio's type is wider
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.stream.aclose()


class Scripted:
    """The server. Fill `events`, `info`, `graph`, `actors` by run; `calls` is what the page has asked for.

    Attributes:
        token: the one it takes.
        away: nothing is answered at all, as if the process were gone.
        lag_at: the first subscription is told `lagged` after this many events.
    """

    def __init__(self) -> None:
        self.token = TOKEN
        self.away = False
        self.lag_at = 0
        self.info: dict[str, Json] = {}
        self.events: dict[str, list[Json]] = {}
        self.graph: dict[str, Json] = {}
        self.actors: dict[str, list[Json]] = {}
        self.targets: list[Json] = []
        self.calls: list[tuple[str, Json]] = []
        self.answers: dict[str, Json] = {}
        self.sockets: set[trio_websocket.WebSocketConnection] = set()
        self.grown = trio.Condition()
        self.numbers = iter(range(1, 1_000_000))
        self.listener, self.port = listening()

    @property
    def url(self) -> str:
        """What `callboard serve` would print."""
        return f"http://127.0.0.1:{self.port}/#token={self.token.replace('+', '%2B')}"

    async def serve(self) -> None:
        """Until cancelled."""
        await trio.serve_listeners(self._connection, [self.listener])

    async def tell(self, run: str, *events: Json) -> None:
        """Events of a run, numbered here."""
        async with self.grown:
            known = self.events.setdefault(run, [])
            known += [{"schema_version": 1, "seq": len(known) + n, **event} for n, event in enumerate(events, 1)]
            self.grown.notify_all()

    async def cut(self) -> None:
        """Break every connection, without a word."""
        for socket in list(self.sockets):
            await socket._stream.aclose()

    async def _connection(self, stream: trio.SocketStream) -> None:
        head = b""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio_websocket.ConnectionClosed):
            while b"\r\n\r\n" not in head:
                if not (more := await stream.receive_some()):
                    return
                head += more
            if not self.away:
                await self._answer(head, stream)
        with trio.move_on_after(5, shield=True):
            await trio.aclose_forcefully(stream)

    async def _answer(self, head: bytes, stream: trio.SocketStream) -> None:
        path = head.split()[1].decode().split("?")[0]
        if path == "/ws":
            await self._websocket(Rest(head, stream))
            return
        found = asset(path)
        status, kind, body = ("404 Nothing", "text/plain", b"") if found is None else ("200 OK", *found)
        fields = {**HEADERS, "content-type": kind, "content-length": str(len(body)), "connection": "close"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await stream.send_all(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body)

    async def _websocket(self, stream: Rest) -> None:
        async with trio.open_nursery() as nursery:
            request = await trio_websocket.wrap_server_stream(nursery, stream)
            if f"bearer.{_base64url(self.token)}" not in request.proposed_subprotocols:
                await request.reject(401)
                nursery.cancel_scope.cancel()
                return
            socket = await request.accept(subprotocol="callboard.v1")
            self.sockets.add(socket)
            try:
                while True:
                    frame = json.loads(await socket.get_message())
                    nursery.start_soon(self._method, nursery, socket, frame)
            except trio_websocket.ConnectionClosed:
                nursery.cancel_scope.cancel()
            finally:
                self.sockets.discard(socket)

    async def _method(self, nursery: trio.Nursery, socket: trio_websocket.WebSocketConnection, frame: Json) -> None:
        method, params = frame["method"], frame["params"]
        self.calls.append((method, params))
        answer: Json = {"jsonrpc": "2.0", "id": frame["id"]}
        with contextlib.suppress(trio_websocket.ConnectionClosed):
            try:
                answer["result"] = self._result(method, params)
            except KeyError:
                answer["error"] = {"code": -32004, "message": "there is no such run", "data": {"code": "not_found"}}
            await socket.send_message(json.dumps(answer))
            if method == "_run/subscribe":
                await self._stream(socket, answer["result"]["subscription"], params["run"], params["after"])

    def _result(self, method: str, params: Json) -> Json:
        if method in self.answers:
            return self.answers[method]
        run = params.get("run")
        subscription = f"s{next(self.numbers)}"
        if method == "_run/list":
            return {"runs": sorted(self.info.values(), key=lambda info: info["started"], reverse=True)}
        if method == "_run/get":
            return {"run": self.info[run]}
        if method == "_run/subscribe":
            return {"subscription": subscription, "seq": len(self.events[run])}
        if method == "_run/graph":
            return self.graph.get(run, {"name": "", "nodes": [], "edges": []})
        if method in ("_actor/subscribe", "_question/subscribe"):
            return {"subscription": subscription, "actors": self.actors.get(run, [])}
        if method == "_target/list":
            return {"targets": self.targets}
        return {}

    async def _stream(self, socket: trio_websocket.WebSocketConnection, subscription: str, run: str, at: int) -> None:
        about = {"subscription": subscription, "run": run}
        while True:
            for event in self.events[run][at:]:
                await _notify(socket, "_run/event", about | {"event": event})
                at += 1
                if at == self.lag_at:
                    self.lag_at = 0
                    await _notify(socket, "_run/lagged", about | {"after": at, "seq": len(self.events[run])})
                    return
                if event["kind"] in ("run.finished", "run.failed", "run.cancelled"):
                    await _notify(socket, "_run/ended", about | {"status": "done"})
                    return
            async with self.grown:
                while at >= len(self.events[run]):
                    await self.grown.wait()


async def _notify(socket: trio_websocket.WebSocketConnection, method: str, params: Json) -> None:
    await socket.send_message(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))


def _base64url(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
