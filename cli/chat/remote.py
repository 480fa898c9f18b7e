"""The way to a chat behind a websocket: frames of the screen to a server, and of the server to the screen.

A connection that breaks is made again, with growing waits, for as long as the other commands try (`control.client`):
meanwhile the screen is the person's, and what they type stays. The conversation hears of it in its turn between the
frames (`disconnected`, `connected`), and takes up what it has missed. A server that was started again has another
token, so it is looked up each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Protocol

import trio

from ...protocol import jsonrpc
from ...protocol.errors import NoServer, Saturated, ServerLost, Unauthorized
from ..control.client import FIRST_WAIT, LONGEST_WAIT, PATIENCE
from ..control.connection import Connection, open_connection
from ..control.servers import Server, Where, find_server
from .bridge import ScreenEnd, TrioEnd
from .local import MOST
from .presence import GOODBYE

SETTLES = 3.0
"""Seconds in which a server that was started again may not have left its token yet."""

GOODBYE_WITHIN = 1.0


class Talk(Protocol):
    """The conversation, as it hears of its connection."""

    def disconnected(self, why: str) -> None:
        """The connection is lost; another is tried."""

    def connected(self) -> None:
        """There is another."""


async def serve(
    server: Server, token: str | None, ours: TrioEnd, screen: ScreenEnd, talk: Talk, last: Callable[[], bytes | None]
) -> None:
    """Carry frames until cancelled; then the last one is sent.

    Args:
        token: as it was given, if it was.
        last: the request that is sent before the end, with the id `GOODBYE`.

    Raises:
        CallboardError: the server does not let us in, is none, or was lost and does not come back.
    """
    where = Where(url=server.url, token=token)
    connection: Connection | None = None
    work = trio.CancelScope()

    async def carry(nursery: trio.Nursery) -> None:
        nonlocal connection
        connection = await open_connection(nursery, server)
        while True:
            await _carry(connection, ours, screen)
            screen.put(partial(talk.disconnected, f"the connection to {server.url} is lost"))
            connection = await _again(nursery, where)
            ours.clear()
            screen.put(talk.connected)

    async with trio.open_nursery() as outside:
        outside.start_soon(_cancels, work)
        with trio.CancelScope(shield=True):  # the connection lasts until the goodbye is said
            async with trio.open_nursery() as nursery:
                with work:
                    await carry(nursery)
                with trio.move_on_after(GOODBYE_WITHIN):
                    await _say_goodbye(connection, last())
                nursery.cancel_scope.cancel()
        outside.cancel_scope.cancel()


async def _cancels(scope: trio.CancelScope) -> None:
    try:
        await trio.sleep_forever()
    finally:
        scope.cancel()


async def _carry(connection: Connection, ours: TrioEnd, screen: ScreenEnd) -> None:
    """Returns when the connection is lost."""

    async def take(frame: bytes) -> None:
        while screen.waiting > MOST:  # noqa: ASYNC110 - another thread takes them in, and has no event of ours
            await trio.sleep(0.01)
        screen.put(frame)

    async def send() -> None:
        async for frame in ours:
            await connection.send(frame)

    connection.pass_on(take)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await connection.over.wait()
        nursery.cancel_scope.cancel()


async def _say_goodbye(connection: Connection | None, frame: bytes | None) -> None:
    """Send the last request, and wait for its answer: what is closed with unread answers may not arrive."""
    answered = trio.Event()

    async def take(frame: bytes) -> None:
        message = jsonrpc.decode(frame)
        if isinstance(message, jsonrpc.Result | jsonrpc.Failure) and message.id == GOODBYE:
            answered.set()

    if frame is not None and connection is not None and not connection.lost:
        connection.pass_on(take)
        await connection.send(frame)
        await answered.wait()


async def _again(nursery: trio.Nursery, where: Where) -> Connection:
    """Raises `ServerLost` when the server has not come back in time."""
    wait, began = FIRST_WAIT, trio.current_time()
    refused: float | None = None
    while True:
        await trio.sleep(wait)
        try:
            return await open_connection(nursery, find_server(where, os.environ))
        except (NoServer, ServerLost, Saturated, Unauthorized) as error:
            now = trio.current_time()
            if isinstance(error, Unauthorized):
                refused = now if refused is None else refused
                if now - refused > SETTLES:
                    raise
            if now - began + wait > PATIENCE:
                raise ServerLost(f"the server is gone, given up after {PATIENCE:g} s: {error}") from None
        wait = min(2 * wait, LONGEST_WAIT)
