"""Interface between the protocol (`client`) and its transports (`stdio`, `http`).

A `Link` belongs to one connection. One actor, its owner, opens it and closes it by ending. Other tasks call `request`
directly, any number of them concurrently. A cancelled `request` leaves nothing behind: the link notifies the server in
the way of its transport, and drops a late answer. When the connection is lost, every active request fails at once with
`McpLost`.

Unsolicited messages of the server go to a `Receiver`, in whichever task reads them; receivers never wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import msgspec

from .....protocol.errors import McpError
from .....protocol.jsonrpc import Notification, Request
from .....protocol.mcp.model import Progress
from .....supervisors import Actor

Json: TypeAlias = Any


class ServerRequestHandler(Protocol):
    """Answers requests that a server sends in the middle of a call. `me` is the actor on whose behalf it answers."""

    async def elicit(self, me: Actor, server: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Return an `ElicitResult`: `{"action": "accept", "content": {...}}`, `{"action": "decline"}` or `"cancel"`."""
        ...

    async def sample(self, me: Actor, server: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """Return a `CreateMessageResult`. Raises `McpError` if sampling is not allowed, or failed."""
        ...


class CallOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a call.

    Attributes:
        me: the call's actor.
        host: answers the server's questions about this call; None refuses them.
        on_progress: called with each progress notification.
        key: key of the call in a durable run: the server may execute its work once per key.
        works: entered while the server works on a task, whose time does not count as the call's.
    """

    me: Actor
    host: ServerRequestHandler | None = None
    key: str | None = None
    on_progress: Callable[[Progress], None] | None = None
    works: Callable[[], AbstractContextManager[None]] | None = None


class OutgoingCall(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Request of the client.

    Attributes:
        id: unique on its connection.
        method, params: content of the request; `params` is complete, `_meta` included.
        caller: origin of the request; None for the client itself.
        headers: additional HTTP headers.
    """

    id: int
    method: str
    params: Mapping[str, Json]
    caller: CallOrigin | None = None
    headers: Mapping[str, str] = {}


class Receiver(Protocol):
    """Receiver of a server's unsolicited messages. `about` is their request, where the transport knows it."""

    def on_request(self, request: Request, about: OutgoingCall | None) -> None:
        """Handle a request of the server: answer it with `Link.respond`, now or later. Never waits."""
        ...

    def on_notification(self, notification: Notification, about: OutgoingCall | None) -> None:
        """Handle a notification of the server."""
        ...


class Link(Protocol):
    """Transport of one connection; see the module."""

    modern: bool
    """True if the server speaks the revision without a handshake; set by the client."""

    version: str
    """Agreed revision; "" before the handshake. Set by the client."""

    lost: McpError | None
    """Reason why nothing can be sent any more; None while the link works."""

    async def request(self, outgoing: OutgoingCall) -> msgspec.Raw:
        """Send a request and wait for its result.

        Raises:
            McpError: the server refused; `rpc_code` and `data` are those of its JSON-RPC error.
            McpUnsent: the connection broke before the server received the request, which may be sent again.
            McpLost: the connection broke, and the server may have executed the request. For a stdio server the text
                quotes its last stderr output.
        """
        ...

    def notify(self, method: str, params: Mapping[str, Json]) -> None:
        """Send a notification as soon as possible. Never waits; it is dropped if the link is lost or its queue full."""
        ...

    def respond(self, message: bytes, about: OutgoingCall | None = None) -> None:
        """Answer a request of the server (see `jsonrpc.encode_result`, `encode_failure`).

        Never waits; the answer is dropped in the same cases as a notification.
        """
        ...
