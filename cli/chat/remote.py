"""Connection to a chat behind a websocket: carries frames between the screen and the server.

A lost connection is retried with growing waits, for as long as other commands retry (`control.client`). The user can
continue to type meanwhile. The conversation learns of it in order between the frames (`disconnected`, `connected`) and
replays missed messages. A restarted server has a new token, so it is looked up for each attempt.
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
from ..control.connection import ControlConnection, open_connection
from ..control.servers import ControlServer, Where, find_server
from .bridge import GOODBYE, ScreenEnd, TrioEnd
from .local import MOST

SETTLES = 3.0
"""Seconds in which a restarted server may not have published its token yet."""

GOODBYE_WITHIN = 1.0


class ConnectedTalk(Protocol):
    """Interface of the conversation for connection changes."""

    def disconnected(self, why: str) -> None:
        """Handle a lost connection; the transport retries."""

    def connected(self) -> None:
        """Handle a restored connection."""


async def serve(
    server: ControlServer,
    token: str | None,
    ours: TrioEnd,
    screen: ScreenEnd,
    talk: ConnectedTalk,
    last: Callable[[], bytes | None],
) -> None:
    """Carry frames until cancelled, then send the last one.

    Args:
        token: token given by the user, if any.
        last: returns the final request, with the id `GOODBYE`.

    Raises:
        CallboardError: the server refuses access, is not a Callboard server, or was lost and did not come back.
    """
    where = Where(url=server.url, token=token)
    connection: ControlConnection | None = None
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
        with trio.CancelScope(shield=True):  # the connection must survive cancellation until the goodbye is sent
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


async def _carry(connection: ControlConnection, ours: TrioEnd, screen: ScreenEnd) -> None:
    """Carry frames until the connection is lost."""

    async def take(frame: bytes) -> None:
        while screen.waiting > MOST:  # noqa: ASYNC110 - the consumer is another thread
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


async def _say_goodbye(connection: ControlConnection | None, frame: bytes | None) -> None:
    """Send the final request and wait for its answer: closing with unread answers could discard the request."""
    answered = trio.Event()

    async def take(frame: bytes) -> None:
        message = jsonrpc.decode(frame)
        if isinstance(message, jsonrpc.Result | jsonrpc.ErrorResponse) and message.id == GOODBYE:
            answered.set()

    if frame is not None and connection is not None and not connection.lost:
        connection.pass_on(take)
        await connection.send(frame)
        await answered.wait()


async def _again(nursery: trio.Nursery, where: Where) -> ControlConnection:
    """Reconnect with growing waits.

    Raises:
        ServerLost: the server did not come back in time.
    """
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
                raise ServerLost(f"the server did not answer for {PATIENCE:g} s: {error}") from None
        wait = min(2 * wait, LONGEST_WAIT)
