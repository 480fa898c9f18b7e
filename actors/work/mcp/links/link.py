"""The interface between the protocol (`client`) and its transports (`stdio`, `http`, `sse`).

A `Link` belongs to one connection and is opened by one actor, its owner, which closes it by ending. Other tasks
call `request` from where they are; any number of requests may be under way at once. A `request` that is
cancelled leaves nothing behind: the link tells the server, in the way its transport has for that, and drops a
late answer. When the connection is lost, every request under way fails at once with `McpLost`.

What the server sends by itself goes to a `Receiver`, in whichever task reads it; receivers never wait.
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


class Host(Protocol):
    """Answers what a server asks in the middle of a call. `me` is the actor on whose behalf the answer is given."""

    async def elicit(self, me: Actor, server: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """An `ElicitResult`: `{"action": "accept", "content": {...}}`, `{"action": "decline"}` or `"cancel"`."""
        ...

    async def sample(self, me: Actor, server: str, params: Mapping[str, Json]) -> dict[str, Json]:
        """A `CreateMessageResult`. Raises `McpError` where it may not, or failed."""
        ...


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a call.

    Attributes:
        me: the call's actor.
        host: answers the server's questions about this call; None and they are refused.
        on_progress: told each progress notification.
        key: of the call, in a durable run: the server may do its work once for each.
        works: entered while the server works on a task of its own, whose time is not that of the call.
    """

    me: Actor
    host: Host | None = None
    key: str | None = None
    on_progress: Callable[[Progress], None] | None = None
    works: Callable[[], AbstractContextManager[None]] | None = None


class Outgoing(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request of ours.

    Attributes:
        id: unique on its connection.
        method, params: what is sent; `params` is ready for the wire, `_meta` included.
        caller: who waits for the answer; None for the client itself.
        headers: for HTTP, beside those that every request has.
    """

    id: int
    method: str
    params: Mapping[str, Json]
    caller: Caller | None = None
    headers: Mapping[str, str] = {}


class Receiver(Protocol):
    """Takes what a server sends by itself. `about` is the request it belongs to, where the transport can tell."""

    def on_request(self, request: Request, about: Outgoing | None) -> None:
        """The server wants to know something; answer with `Link.respond`."""
        ...

    def on_notification(self, notification: Notification, about: Outgoing | None) -> None:
        """The server says something."""
        ...


class Link(Protocol):
    """See the module."""

    modern: bool
    """Whether the server speaks the revision without a handshake; set by the client once it knows."""

    version: str
    """The revision agreed on; "" until it is known. Set by the client."""

    lost: McpError | None
    """Why nothing can be sent any more; None while it can."""

    async def request(self, outgoing: Outgoing) -> msgspec.Raw:
        """Send it and wait for its result.

        Raises:
            McpError: the server refused; `code`, `data` are the wire's.
            McpLost: the connection broke, or had broken before; the text ends with the server's last words.
        """
        ...

    def notify(self, method: str, params: Mapping[str, Json]) -> None:
        """Send a notification as soon as possible. Never waits; what can't be sent any more is dropped."""
        ...

    def respond(self, message: bytes, about: Outgoing | None = None) -> None:
        """Answer a request of the server's (see `jsonrpc.encode_result`, `encode_failure`). Never waits."""
        ...
