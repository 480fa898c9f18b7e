"""An MCP server over HTTP for tests, whose every byte the test decides. Real sockets on loopback.

    async def answer(request, talk):
        await talk.stream()
        await talk.event({"jsonrpc": "2.0", "id": request.json["id"], "result": {}}, id="1")
        await talk.end()

    server = await fake_mcp(nursery, answer)

One that behaves is `Legacy` (sessions, both kinds of answers) or `Modern`; a test wraps what it wants to go wrong.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio

from support.fake_models import Incoming, Request, listening

Json = Any
SESSION = "s-1"


class Talk:
    """The answer to one request, as it is sent."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._turn = trio.Lock()
        self.done = False
        """Whether another request may follow on the connection."""

    async def whole(self, body: bytes, status: int = 200, **headers: str) -> None:
        """Status, headers and body at once."""
        lines = {"content-length": str(len(body)), **{name.replace("_", "-"): text for name, text in headers.items()}}
        await self.raw(self._head(status, lines) + body)
        self.done = True

    async def json(self, value: Json, status: int = 200, **headers: str) -> None:
        """A JSON body."""
        await self.whole(json.dumps(value).encode(), status, content_type="application/json", **headers)

    async def stream(self, status: int = 200, **headers: str) -> None:
        """The head of an event stream."""
        lines = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        await self.raw(self._head(status, lines | {name.replace("_", "-"): text for name, text in headers.items()}))

    async def event(self, message: Json = None, *, id: str = "", retry: int | None = None, kind: str = "") -> None:
        """One event; without a message it has an empty line of data. A str is sent as it is."""
        data = message if isinstance(message, str) else "" if message is None else json.dumps(message)
        fields = [("event", kind), ("id", id), ("retry", "" if retry is None else str(retry))]
        text = "".join(f"{name}: {value}\n" for name, value in fields if value) + f"data: {data}\n\n"
        await self.chunk(text.encode())

    async def chunk(self, data: bytes) -> None:
        """A piece of a stream."""
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """The end of a stream."""
        await self.raw(b"0\r\n\r\n")
        self.done = True

    async def raw(self, data: bytes) -> None:
        """Bytes."""
        async with self._turn:
            await self._stream.send_all(data)

    async def gone(self) -> None:
        """Wait until the client hangs up."""
        with suppress(trio.BrokenResourceError):
            while await self._stream.receive_some(65536):
                pass

    def _head(self, status: int, headers: dict[str, str]) -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode()


Answer = Callable[[Request, Talk], Awaitable[None]]


class FakeMcp:
    """The server. Attributes: `requests` so far; `accepted` connections, and those that are `open`."""

    def __init__(self, port: int, answer: Answer) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.origin = f"http://127.0.0.1:{port}"
        self.answer = answer
        self.requests: list[Request] = []
        self.accepted = self.open = 0
        self._changed = trio.lowlevel.ParkingLot()

    def methods(self) -> list[str]:
        """What was POSTed so far, by its method ("answer" for one), and other requests by HTTP's."""
        return [said(request) for request in self.requests]

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until something holds; looked at when a request comes or a connection goes."""
        while not happened():
            await self._changed.park()

    async def heard(self, what: str) -> Request:
        """Wait for the first such request."""
        await self.until(lambda: what in self.methods())
        return self.requests[self.methods().index(what)]

    async def serve(self, listener: trio.SocketListener) -> None:
        """Serve until cancelled."""
        await trio.serve_listeners(self._connection, [listener])

    async def _connection(self, stream: trio.SocketStream) -> None:
        self.accepted += 1
        self.open += 1
        try:
            await self._requests_of(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.open -= 1
            stream.socket.close()
            self._changed.unpark_all()

    async def _requests_of(self, stream: trio.SocketStream) -> None:
        incoming = Incoming(stream)
        while (request := await incoming.next()) is not None:
            self.requests.append(request)
            self._changed.unpark_all()
            talk = Talk(stream)
            await self.answer(request, talk)
            if not talk.done:
                return


def said(request: Request) -> str:
    """`tools/call`, `answer`, `GET`, `DELETE`."""
    return str(request.json.get("method", "answer")) if request.method == "POST" else request.method


async def fake_mcp(nursery: trio.Nursery, answer: Answer) -> FakeMcp:
    """A server that answers so, until the nursery ends."""
    listener, port = listening()
    server = FakeMcp(port, answer)
    nursery.start_soon(server.serve, listener)
    return server


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def result(request: Request, value: Json) -> Json:
    """The message that answers a request."""
    return {"jsonrpc": "2.0", "id": request.json["id"], "result": value}


def failure(request: Request, code: int, text: str) -> Json:
    """The message that refuses one."""
    return {"jsonrpc": "2.0", "id": request.json.get("id"), "error": {"code": code, "message": text}}


INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "fake", "version": "1"}}


class Legacy:
    """Answers as a server with sessions does. `streams`: by events, else by JSON. Others go to `otherwise`."""

    def __init__(self, otherwise: Answer | None = None, *, streams: bool = True, listens: bool = False) -> None:
        self.otherwise = otherwise
        self.streams = streams
        self.listens = listens

    async def __call__(self, request: Request, talk: Talk) -> None:
        what = said(request)
        if what == "initialize":
            await talk.json(result(request, INITIALIZED), mcp_session_id=SESSION)
        elif what == "server/discover":
            await talk.json(failure(request, -32601, "Method not found"), 400)
        elif request.headers.get("mcp-session-id") != SESSION:
            await talk.json(failure(request, -32600, "no such session"), 404)
        elif what == "GET" and not self.listens:
            await talk.whole(b"", 405)
        elif what == "DELETE":
            await talk.whole(b"")
        elif what == "answer" or what.startswith("notifications/"):
            await talk.whole(b"", 202)
        elif self.otherwise is not None:
            await self.otherwise(request, talk)
        else:
            await self.echo(request, talk)

    async def echo(self, request: Request, talk: Talk) -> None:
        """The request's params as its result."""
        answer = result(request, {"echo": request.json["params"]})
        if not self.streams:
            await talk.json(answer)
            return
        await talk.stream()
        await talk.event(answer)
        await talk.end()


class Stream:
    """Answers as a server of 2024-11-05 does: on its one stream, until `broken` is set, it echoes.

    `first`: its first event's data. Calls of `slow` are not answered, those of `refused` are refused.
    """

    def __init__(self, first: str = "/messages?session=1") -> None:
        self.first = first
        self.talk: Talk | None = None
        self.broken = trio.Event()

    async def __call__(self, request: Request, talk: Talk) -> None:
        what = said(request)
        if what == "GET":
            self.talk = talk
            await talk.stream()
            await talk.event(self.first, kind="endpoint")
            await self.broken.wait()
            return
        assert request.path == "/messages?session=1"
        await talk.whole(b"Accepted", 202)
        if what.startswith("notifications/") or what == "answer":
            return
        assert self.talk is not None
        params = request.json["params"]
        if what == "initialize":
            await self.talk.event(result(request, INITIALIZED))
        elif params.get("name") == "refused":
            error = {"code": -32602, "message": "no such tool"}
            await self.talk.event({"jsonrpc": "2.0", "id": request.json["id"], "error": error})
        elif params.get("name") != "slow":
            await self.talk.event(result(request, {"echo": params}))
