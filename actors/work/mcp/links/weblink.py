"""What the links over HTTP share: how requests end, and how messages go out that need no reply.

Those are notifications, and our answers to what the server asks. Each is sent by a child of the link's own actor, a few
at a time. What can't be sent is dropped and counted, since no caller could act on it: that the server is gone shows
with the next request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress

import msgspec
import trio

from .....protocol.errors import McpError, McpLost, McpUnsent, ShuttingDown
from .....protocol.jsonrpc import encode_notification
from .....protocol.mcp.model import META_VERSION
from .....supervisors import Actor
from .link import Json, Outgoing, Receiver
from .web import UNKNOWN, Web

WITHIN = 30.0
"""Seconds for a server to take a message."""

AT_ONCE = 16
"""Messages on their way at the same time."""

WAITING = 4096
"""Messages that have not been sent yet."""

INITIALIZED = "notifications/initialized"


class WebLink(ABC):
    """See the module, and `link.Link`.

    Attributes:
        own: the link's own actor.
        dropped: messages that could not be sent.
        opened: set, but for the time that `notifications/initialized` is on its way, which no request may overtake.
    """

    own: Actor

    def __init__(self, web: Web, receiver: Receiver) -> None:
        self.modern = False
        self.version = ""
        self.dropped = 0
        self.opened = trio.Event()
        self.opened.set()
        self._web = web
        self._receiver = receiver
        self._lost: McpError | None = None
        self._places = trio.Semaphore(AT_ONCE)

    @abstractmethod
    async def _ask(self, outgoing: Outgoing) -> msgspec.Raw:
        """Send a request and wait for its result."""

    @abstractmethod
    async def _post(self, method: str, body: bytes) -> None:
        """Send one message; raises `McpError` if it can't. `method` is "" for an answer."""

    @property
    def lost(self) -> Exception | None:
        """See `Link`."""
        return self._lost

    def _lose(self, error: McpError) -> None:
        if self._lost is None:
            self._lost = error
            self._web.close()
            self.opened.set()

    def _check(self) -> None:
        if self._lost is not None:
            raise McpUnsent(str(self._lost))

    async def request(self, outgoing: Outgoing) -> msgspec.Raw:
        """See `Link`."""
        await self.opened.wait()
        self._check()
        try:
            return await self._ask(outgoing)
        except trio.Cancelled:
            if outgoing.method != "initialize" and not version_in(outgoing):  # else the closed response says it
                self.notify("notifications/cancelled", {"requestId": outgoing.id, "reason": "no longer needed"})
            raise
        except McpLost as error:
            why = self._lost or error  # rather than what became of our side of it
            raise (McpUnsent(str(why)) if isinstance(error, McpUnsent) else McpLost(f"{why}; {UNKNOWN}")) from error

    def notify(self, method: str, params: Mapping[str, Json]) -> None:
        """See `Link`."""
        self._soon(method, encode_notification(method, params))

    def respond(self, message: bytes, about: Outgoing | None = None) -> None:  # noqa: ARG002 - other links want it
        """See `Link`."""
        self._soon("", message)

    def _soon(self, method: str, body: bytes) -> None:
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


def version_in(outgoing: Outgoing) -> str:
    """The revision that a request of the modern era names in itself; "" in one of an earlier."""
    meta = outgoing.params.get("_meta")
    return str(meta.get(META_VERSION, "")) if isinstance(meta, Mapping) else ""
