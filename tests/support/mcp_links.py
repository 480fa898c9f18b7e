"""Links over HTTP for tests: opened by an actor of their own, as the pool would, with a receiver that remembers."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import trio

from callboard.actors.work.mcp.links.http import open_http
from callboard.actors.work.mcp.links.link import Link, OutgoingCall
from callboard.protocol.jsonrpc import Notification, Request, encode_result
from callboard.protocol.mcp.config import Server
from callboard.protocol.mcp.model import META_VERSION, MODERN
from callboard.supervisors import Actor, Root
from support.fake_mcp_http import FakeMcp
from support.waiting import PATIENCE

NUMBERS = itertools.count(1)


class Heard:
    """A receiver that remembers."""

    def __init__(self) -> None:
        self.notifications: list[tuple[str, Any, int | None]] = []
        self.requests: list[tuple[Request, OutgoingCall | None]] = []
        self.came = trio.lowlevel.ParkingLot()
        self.link: Link | None = None

    def on_request(self, request: Request, about: OutgoingCall | None) -> None:
        self.requests.append((request, about))
        if self.link is not None:
            self.link.respond(encode_result(request.id, {"action": "cancel"}), about)
        self.came.unpark_all()

    def on_notification(self, notification: Notification, about: OutgoingCall | None) -> None:
        params = json.loads(bytes(notification.params))
        self.notifications.append((notification.method, params, about.id if about is not None else None))
        self.came.unpark_all()


def asks(method: str = "tools/call", modern: bool = False, **params: Any) -> OutgoingCall:
    if modern:
        params["_meta"] = {META_VERSION: MODERN}
    return OutgoingCall(id=next(NUMBERS), method=method, params=params)


def value(raw: msgspec.Raw) -> Any:
    return json.loads(bytes(raw))


@asynccontextmanager
async def opened_by_actor(
    body: Callable[[Actor], AbstractAsyncContextManager[Any]],
) -> AsyncIterator[tuple[Any, Actor]]:
    """What `body` opens, in an actor of its own as the pool would have it, and that actor."""
    async with Root() as root:
        opened: list[Any] = []
        over = trio.Event()

        async def own(me: Actor) -> None:
            async with body(me) as thing:
                opened.extend((thing, me))
                me.started()
                await over.wait()

        ref = await root.start(own, name="owner", link=False)
        try:
            yield opened[0], opened[1]
        finally:
            over.set()
            with trio.fail_after(PATIENCE):
                await ref.wait()


def linked(server: FakeMcp, heard: Heard | None = None, **options: Any) -> AbstractAsyncContextManager[Any]:
    entry = Server(name="fake", type="http", url=server.url, **options)
    return opened_by_actor(lambda me: open_http(me, entry, heard or Heard(), {}))


async def shake_hands(link: Link) -> None:
    await link.request(asks("initialize", protocolVersion="2025-11-25"))
    link.version = "2025-11-25"
    link.notify("notifications/initialized", {})
