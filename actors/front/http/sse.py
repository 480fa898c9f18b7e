"""Server-sent events: how they are written, and a reply that consists of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from starlette.types import Receive, Scope, Send

from .leaving import while_there

PING_EVERY = 15.0
"""Seconds of silence after which a client is shown that we are still there."""

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
PING = b": ping\n\n"

Say = Callable[[bytes], Awaitable[None]]


def event(data: bytes, *, name: str = "", id: int | None = None) -> bytes:
    """One event; `data` is JSON, so it has no line breaks."""
    head = b"" if id is None else b"id: %d\n" % id
    if name:
        head += b"event: " + name.encode() + b"\n"
    return head + b"data: " + data + b"\n\n"


class EventStream:
    """A reply that is told as it happens.

    Args:
        tell: says all there is to say; it is cancelled when the client leaves.
    """

    def __init__(self, tell: Callable[[Say], Awaitable[None]]) -> None:
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application; a HEAD does not wait for what there would be to tell."""
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await while_there(receive, lambda: self.run(send))

    async def run(self, send: Send) -> None:
        """Begin the reply, tell it, end it. Whoever calls looks after a client that leaves."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
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
