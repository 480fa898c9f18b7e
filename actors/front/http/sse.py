"""A reply that consists of server-sent events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from starlette.types import Receive, Scope, Send

from ...io.http.sse import HEADERS, PING, PING_EVERY
from .leaving import while_there

Say = Callable[[bytes], Awaitable[None]]


_HEADERS = [
    (name.encode(), value.encode())
    for name, value in {**HEADERS, "content-type": "text/event-stream; charset=utf-8"}.items()
]


class EventStream:
    """A reply that is a stream of events.

    Args:
        tell: says all there is to say; it is cancelled when the client leaves.
    """

    def __init__(self, tell: Callable[[Say], Awaitable[None]]) -> None:
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application; a HEAD does not wait for what there would be to tell."""
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await while_there(receive, lambda: self.run(send))

    async def run(self, send: Send) -> None:
        """Begin the reply, stream it, end it. The caller handles a client that leaves."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        line = _Line(send)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.ping)
            await self._tell(line.say)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Line:
    """What was said last, and when."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = trio.Lock()
        self._said = trio.current_time()

    async def say(self, text: bytes) -> None:
        async with self._lock:
            self._said = trio.current_time()
            await self._send({"type": "http.response.body", "body": text, "more_body": True})

    async def ping(self) -> None:
        await self.say(PING)
        while True:
            await trio.sleep_until(self._said + PING_EVERY)
            if trio.current_time() >= self._said + PING_EVERY:
                await self.say(PING)
