"""Sends messages over HTTP that need no reply: notifications, and our answers to what the server asks.

Each is sent by a child of the link's own actor, a few at a time. What can't be sent is dropped and counted, since
no caller could act on it; that the server is gone shows with the next request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import McpError, ShuttingDown

if TYPE_CHECKING:
    from .....supervisors import Actor

WITHIN = 30.0
"""Seconds for a server to take a message."""

AT_ONCE = 16
"""Messages on their way at the same time."""

WAITING = 4096
"""Messages that have not been sent yet."""

INITIALIZED = "notifications/initialized"


class Posts:
    """See the module.

    Args:
        post: sends one message; raises `McpError` if it can't.

    Attributes:
        own: the link's own actor.
        dropped: messages that could not be sent.
        opened: set, but for the time that `notifications/initialized` is on its way, which no request may overtake.
    """

    def __init__(self, post: Callable[[str, bytes], Awaitable[None]]) -> None:
        self.own: Actor
        self.dropped = 0
        self.opened = trio.Event()
        self.opened.set()
        self._post = post
        self._places = trio.Semaphore(AT_ONCE)

    def soon(self, method: str, body: bytes) -> None:
        """Send a message as soon as possible; `method` is "" for an answer."""
        if self.own.child_count < WAITING:
            with suppress(ShuttingDown):
                self.own.spawn(self._send, method, body, name="post", link=False)
                if method == INITIALIZED:
                    self.opened = trio.Event()
                return
        self.dropped += 1

    async def _send(self, _own: Actor, method: str, body: bytes) -> None:
        try:
            async with self._places:
                with trio.fail_after(WITHIN):
                    await self._post(method, body)
        except (McpError, trio.TooSlowError):
            self.dropped += 1
        finally:
            if method == INITIALIZED:
                self.opened.set()
