"""A client that reconnects: subscriptions resume where they were.

A server of this machine whose process has ended is not waited for. Any other is tried again for `PATIENCE` seconds,
which is long enough for a restart and for a network that comes and goes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
import trio

from ...protocol.errors import NoServer, Saturated, ServerLost
from .connection import Connection, Feed, open_connection
from .servers import Server

T = TypeVar("T")

PATIENCE = 30.0
_LOOKS = ("get", "list", "tree", "inspect", "events", "graph", "info", "status")
"""How the methods end that change nothing."""

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 2.0


class Client:
    """What commands talk to. `open_client` makes it.

    Attributes:
        server: whom we talk to.
        tell: called with a line when the connection is lost, and when it is back.
    """

    def __init__(self, server: Server, nursery: trio.Nursery) -> None:
        self.server = server
        self.tell: Callable[[str], None] = lambda _: None
        self._nursery = nursery
        self._lock = trio.Lock()
        self._connection: Connection | None = None

    async def ask(self, method: str, type: type[T], /, **params: Any) -> T:
        """What the server answers. What only looks is asked again if the connection is lost meanwhile.

        Raises:
            CallboardError: it refuses, by the code it gave.
            ServerLost: it is gone; or the connection was lost and it is not known what the request has done.
        """
        while True:
            connection = await self.connected()
            try:
                return self._read(await connection.request(method, _given(params)), type)
            except ServerLost:
                if not (connection.lost and method.rpartition("/")[2] in _LOOKS):
                    raise

    async def subscribe(self, method: str, type: type[T], /, **params: Any) -> tuple[T, Feed]:
        """The answer, and the feed of what comes after it. Raises as `ask` does."""
        while True:
            connection = await self.connected()
            try:
                result, feed = await connection.subscribe(method, _given(params))
                return self._read(result, type), feed
            except ServerLost:
                if not connection.lost:
                    raise

    def _read(self, result: msgspec.Raw, type: type[T]) -> T:
        try:
            return msgspec.json.decode(result, type=type)
        except msgspec.MsgspecError as error:
            raise ServerLost(f"the server at {self.server.url} says what this callboard can't read: {error}") from None

    async def connected(self) -> Connection:
        """A connection that is up, as far as is known."""
        async with self._lock:
            if self._connection is None:
                self._connection = await open_connection(self._nursery, self.server)
            elif self._connection.lost:
                self._connection = await self._again()
            return self._connection

    async def _again(self) -> Connection:
        """Raises `ServerLost` when the server is known to be gone, or has not answered for so long."""
        told, wait = False, _FIRST_WAIT
        last = trio.current_time() + PATIENCE
        while True:
            if self.server.gone:
                raise ServerLost(f"the server at {self.server.url} has ended (process {self.server.pid})")
            try:
                connection = await open_connection(self._nursery, self.server)
            except (NoServer, ServerLost, Saturated) as error:
                if trio.current_time() + wait > last:
                    raise ServerLost(f"the server is gone, given up after {PATIENCE:g} s: {error}") from None
            else:
                if told:
                    self.tell(f"connected to {self.server.url} again")
                return connection
            if not told:
                told = True
                self.tell(f"the connection to {self.server.url} is lost; trying again for {PATIENCE:g} s")
            await trio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)


def _given(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


@asynccontextmanager
async def open_client(server: Server) -> AsyncIterator[Client]:
    """A client of the server, which is connected; the connection ends with the block.

    The block should let no error of ours out: it would arrive wrapped in a group.
    """
    async with trio.open_nursery() as nursery:
        client = Client(server, nursery)
        try:
            yield client
        finally:
            nursery.cancel_scope.cancel()
