"""Client of the control channel: JSON-RPC requests in both directions, on the screen's asyncio loop.

The transport belongs to the caller: `send` writes a frame, `receive` processes an incoming one. So the same client
works for a hub in this process and for one behind a websocket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from ...protocol import jsonrpc
from ...protocol.control.errors import error_of
from ...protocol.decoding import decode_json
from ...protocol.errors import CallboardError, ServerLost

T = TypeVar("T")


class ChatClient:
    """Control channel client.

    Attributes:
        notified: callback for the method and parameters of each notification.
        requested: handler of server requests; raises `KeyError` for an unknown method.
    """

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.notified: Callable[[str, msgspec.Raw], None] = lambda _method, _params: None
        self.requested: Callable[[str, msgspec.Raw], Awaitable[Any]] = _none
        self._send = send
        self._count = 0
        self._asked: dict[jsonrpc.Id, asyncio.Future[msgspec.Raw]] = {}
        self._answering: dict[jsonrpc.Id, asyncio.Task[None]] = {}
        self._lost: str | None = None

    @property
    def lost(self) -> bool:
        """True while the connection is lost."""
        return self._lost is not None

    async def ask(self, method: str, type: type[T], /, **params: Any) -> T:
        """Send a request and return its result. Parameters that are None are omitted.

        Raises:
            CallboardError: the server refuses, with its error code, or the connection is lost.
        """
        if self._lost is not None:
            raise ServerLost(self._lost)
        self._count += 1
        number = self._count
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            given = {name: value for name, value in params.items() if value is not None}
            self._send(jsonrpc.encode_request(number, method, given))
            result = await answer
        finally:
            del self._asked[number]
        try:
            return decode_json(result, type)
        except msgspec.MsgspecError as error:
            raise ServerLost(f"the answer of the server to {method} is invalid: {error}") from None

    def receive(self, frame: bytes) -> None:
        """Process one incoming frame."""
        try:
            message = jsonrpc.decode(frame)
        except ValueError:
            return  # invalid JSON-RPC: ignored
        if isinstance(message, jsonrpc.Notification):
            if message.method == "$/cancel_request":
                self._withdrawn(message)
            else:
                self.notified(message.method, message.params)
        elif isinstance(message, jsonrpc.Request):
            task = asyncio.get_running_loop().create_task(self._answer(message))
            self._answering[message.id] = task
            task.add_done_callback(lambda _: self._answering.pop(message.id, None))
        elif message.id is not None and (asked := self._asked.get(message.id)) is not None and not asked.done():
            if isinstance(message, jsonrpc.ErrorResponse):
                asked.set_exception(error_of(message.error))
            else:
                asked.set_result(message.result)

    def lose(self, why: str) -> None:
        """Mark the connection as lost: pending requests fail, and server requests are cancelled."""
        self._lost = self._lost or why
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ServerLost(why))
        for task in self._answering.values():
            task.cancel()

    def regain(self) -> None:
        """Mark the connection as restored."""
        self._lost = None

    async def _answer(self, request: jsonrpc.Request) -> None:
        try:
            frame = jsonrpc.encode_result(request.id, await self.requested(request.method, request.params))
        except KeyError:
            text = f"this client does not support '{request.method}'"
            frame = jsonrpc.encode_failure(request.id, jsonrpc.METHOD_NOT_FOUND, text)
        except (msgspec.MsgspecError, CallboardError) as error:
            frame = jsonrpc.encode_failure(request.id, jsonrpc.INVALID_PARAMS, str(error))
        self._send(frame)

    def _withdrawn(self, message: jsonrpc.Notification) -> None:
        with suppress(msgspec.MsgspecError):
            id = decode_json(message.params, _Withdrawn).requestId
            if (task := self._answering.get(id)) is not None:
                task.cancel()


class _Withdrawn(msgspec.Struct):
    requestId: jsonrpc.Id  # noqa: N815 - a name of the wire


async def _none(_method: str, _params: msgspec.Raw) -> Any:
    raise KeyError
