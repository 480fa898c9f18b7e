"""The layer that limits a request's body and its time.

A stream of events may take as long as its run: the limit is for its beginning only.
"""

from __future__ import annotations

from typing import final

import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import told


@final
class Bounds:
    """See the module.

    Args:
        max_body: bytes.
        timeout: seconds until the reply is complete, or until a stream of events has begun.
    """

    def __init__(self, app: ASGIApp, *, max_body: int, timeout: float) -> None:
        self._app = app
        self._max = max_body
        self._timeout = timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bounded = _Bounded(self._max, receive, send)
        if not bounded.announced_too_much(scope):
            with trio.move_on_after(self._timeout) as bounded.scope:
                await self._app(scope, bounded.receive, bounded.send)
        id = scope["state"]["request_id"]
        headers = {"connection": "close"}
        if bounded.too_much and not bounded.begun:
            text = f"a body has at most {self._max} bytes here"
            await told(413, "too_large", text, id, headers)(scope, receive, send)
        elif bounded.scope.cancelled_caught and not bounded.begun:
            text = f"the request took more than {self._timeout:g} s and was cancelled"
            await told(504, "timeout", text, id, headers)(scope, receive, send)


class _Bounded:
    """One request's channels.

    Attributes:
        begun: whether a reply has begun.
        too_much: whether the body has passed the limit; from then on the application's words go nowhere.
    """

    def __init__(self, most: int, receive: Receive, send: Send) -> None:
        self.begun = False
        self.too_much = False
        self.scope = trio.CancelScope()
        self._left = most
        self._receive = receive
        self._send = send

    def announced_too_much(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name.lower() == b"content-length":
                self.too_much = not value.isdigit() or len(value) > 18 or int(value) > self._left
        return self.too_much

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0 and not self.begun:
                self.too_much = True
                self.scope.cancel()
                await trio.lowlevel.checkpoint()
        return message

    async def send(self, message: Message) -> None:
        if self.too_much and not self.begun:
            return
        if message["type"] == "http.response.start":
            self.begun = True
            if any(
                bytes(name).lower() == b"content-type" and bytes(value).startswith(b"text/event-stream")
                for name, value in message.get("headers", ())
            ):
                self.scope.deadline = float("inf")
        await self._send(message)
