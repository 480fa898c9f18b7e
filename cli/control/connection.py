"""Websocket connection to a server: requests with ids, and notifications dispatched by subscription.

The reader never waits for subscribers: a feed with `BOUND` unread notifications is ended (`FeedCut`), and its reader
subscribes again from its last position. So no slow subscriber delays the answer of another request.

trio-websocket raises handshake errors in the nursery that it gets, and waits forever for a server that hangs up. So
each connection has a task with its own nursery (`_hold`), and a stream that reports an early end.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    HandshakeError,
    WebSocketConnection,
    wrap_client_stream,
)
from wsproto.utilities import ProtocolError

from ...protocol import jsonrpc
from ...protocol.control.errors import error_of
from ...protocol.control.method_structs import VERSION
from ...protocol.decoding import decode_json, json_decoder
from ...protocol.errors import (
    CallboardError,
    Denied,
    NoServer,
    Saturated,
    ServerLost,
    Unauthorized,
    Unsupported,
)
from .servers import ControlServer

BOUND = 20_000
PONG_WITHIN = 10.0
PING_EVERY = 20.0


class FeedCut(Exception):
    """The feed has ended: the connection is lost, or its reader was too slow."""


class _Of(msgspec.Struct):
    subscription: str | int


_OF = json_decoder(_Of)


class NotificationFeed:
    """Notifications of one subscription: method and parameters, in order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, msgspec.Raw]] = deque()
        self._ended = False
        self._lot = trio.lowlevel.ParkingLot()

    def put(self, method: str, params: msgspec.Raw) -> bool:
        """Append a notification; return False if the feed has ended."""
        if len(self._waiting) >= BOUND:
            self.end()
        if self._ended:
            return False
        self._waiting.append((method, params))
        self._lot.unpark()
        return True

    def end(self) -> None:
        """End the feed; queued notifications can still be read."""
        self._ended = True
        self._lot.unpark_all()

    async def get(self) -> tuple[str, msgspec.Raw]:
        """Return the next notification.

        Raises:
            FeedCut: the feed is empty and has ended.
        """
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._ended:
                raise FeedCut
            await self._lot.park()
        return self._waiting.popleft()


class _Asked:
    """Pending request."""

    def __init__(self, *, subscribes: bool) -> None:
        self.done = trio.Event()
        self.subscribes = subscribes
        self.answer: jsonrpc.Result | jsonrpc.ErrorResponse | None = None
        self.feed: NotificationFeed | None = None


class ControlConnection:
    """Websocket connection, created by `open_connection`.

    Attributes:
        lost: True if it has ended; `over` is then set.
    """

    def __init__(self, server: ControlServer, socket: WebSocketConnection) -> None:
        self._server = server
        self._socket = socket
        self._ids = 0
        self._asked: dict[jsonrpc.Id, _Asked] = {}
        self._feeds: dict[str | int, NotificationFeed] = {}
        self._taken: Callable[[bytes], Awaitable[None]] = self._take
        self.lost = False
        self.over = trio.Event()

    async def request(self, method: str, params: dict[str, Any]) -> msgspec.Raw:
        """Send a request and return its result.

        Raises:
            CallboardError: the server refuses, with its error code.
            ServerLost: the connection ended before the answer; the request's effect is unknown.
        """
        return (await self._ask(method, params, subscribes=False))[0]

    async def subscribe(self, method: str, params: dict[str, Any]) -> tuple[msgspec.Raw, NotificationFeed]:
        """Send a subscription request; return the result and its feed. Raises as `request` does."""
        result, feed = await self._ask(method, params, subscribes=True)
        assert feed is not None
        return result, feed

    async def _ask(
        self, method: str, params: dict[str, Any], *, subscribes: bool
    ) -> tuple[msgspec.Raw, NotificationFeed | None]:
        self._ids += 1
        asked = self._asked[self._ids] = _Asked(subscribes=subscribes)
        number = self._ids
        try:
            if not self.lost:
                await self.send(jsonrpc.encode_request(number, method, params))
            if self.lost:
                raise lost_at(self._server)
            await asked.done.wait()
        finally:
            del self._asked[number]
        if asked.answer is None:
            raise lost_at(self._server)
        if isinstance(asked.answer, jsonrpc.ErrorResponse):
            raise error_of(asked.answer.error)
        return asked.answer.result, asked.feed

    def pass_on(self, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Pass incoming frames to `take` from now on; its owner also sends frames.

        Own requests get no answers any more.
        """
        self._taken = take

    async def send(self, frame: bytes) -> None:
        """Send a frame. A frame that can't be sent is lost, and the connection is closed."""
        try:
            await self._socket.send_message(frame.decode())
        except (ConnectionClosed, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            self.close()

    # --- incoming frames ------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Process incoming frames until the connection ends."""
        try:
            while True:
                frame = await self._socket.get_message()
                await self._taken(frame.encode() if isinstance(frame, str) else frame)
        except (ConnectionClosed, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.close()

    async def _take(self, frame: bytes) -> None:
        try:
            message = jsonrpc.decode(frame)
        except ValueError:
            self.close()  # invalid JSON-RPC: not a Callboard server
            return
        if isinstance(message, jsonrpc.Notification):
            self._sort(message)
        elif isinstance(message, jsonrpc.Request):
            text = f"this client does not support '{message.method}'"
            await self.send(jsonrpc.encode_failure(message.id, jsonrpc.METHOD_NOT_FOUND, text))
        elif message.id is not None and (asked := self._asked.get(message.id)) is not None:
            if asked.subscribes and isinstance(message, jsonrpc.Result):
                # The feed must exist before the next frame, which may be its first notification.
                asked.feed = self._open_feed(message.result)
            asked.answer = message
            asked.done.set()

    def _open_feed(self, result: msgspec.Raw) -> NotificationFeed:
        feed = NotificationFeed()
        try:
            self._feeds[_OF.decode(result).subscription] = feed
        except msgspec.MsgspecError:
            feed.end()  # unknown answer
        return feed

    def _sort(self, message: jsonrpc.Notification) -> None:
        try:
            subscription = _OF.decode(message.params).subscription
        except msgspec.MsgspecError:
            return  # a notification without a subscription
        feed = self._feeds.get(subscription)
        if feed is not None and not feed.put(message.method, message.params):
            del self._feeds[subscription]

    async def keep_alive(self) -> None:
        """Ping every `PING_EVERY` seconds; close the connection if the server does not answer.

        A half-open one would never end.
        """
        while not self.lost:
            await trio.sleep(PING_EVERY)
            with trio.move_on_after(PONG_WITHIN) as clock:
                try:
                    await self._socket.ping()
                except (ConnectionClosed, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                    self.close()
            if clock.cancelled_caught:
                self.close()

    def close(self) -> None:
        """Mark the connection as lost; pending requests fail and feeds end."""
        self.lost = True
        self.over.set()
        for feed in self._feeds.values():
            feed.end()
        for asked in self._asked.values():
            asked.done.set()


def lost_at(server: ControlServer) -> ServerLost:
    if server.has_ended:
        return ServerLost(f"the server at {server.url} has ended (process {server.pid})")
    return ServerLost(f"the connection to the server at {server.url} is lost")


WITHIN = 10.0
"""Timeout for connecting, in seconds."""

_BIGGEST = 256 * 1024 * 1024
"""Maximum bytes of a frame: a run's outcome contains its whole state."""

_BUFFER = 65_536


class _Info(msgspec.Struct):
    protocol: int = 0
    version: str = ""


async def open_connection(nursery: trio.Nursery, server: ControlServer) -> ControlConnection:
    """Connect to a server. A task of `nursery` reads incoming frames until the connection ends.

    Raises:
        NoServer: no Callboard server answers at the address.
        ServerLost: the server does not answer in time.
        Unauthorized, Denied, Saturated: the server refuses access.
        Unsupported: the server has another protocol version.
    """
    connection: ControlConnection | None = None
    with trio.move_on_after(WITHIN):
        connection = await nursery.start(_hold, server)
    if connection is None:
        plain = "; if it does not use TLS, write its address with http://" if server.tls else ""
        raise ServerLost(f"the server at {server.url} does not answer within {WITHIN:g} s{plain}")
    try:
        info = decode_json(await connection.request("_server/info", {}), _Info)
    except msgspec.ValidationError:
        info = _Info()
    if info.protocol != VERSION:
        connection.close()
        raise Unsupported(
            f"the server at {server.url} speaks version {info.protocol} of the control protocol, "
            f"this callboard version {VERSION}: use the same callboard on both sides"
        )
    return connection


async def _hold(server: ControlServer, task_status: trio.TaskStatus[ControlConnection]) -> None:
    """Own a connection until it ends. trio-websocket raises its errors in the nursery that it gets, hence this task."""
    stream: _Watched | None = None
    connection: ControlConnection | None = None
    try:
        async with trio.open_nursery() as nursery:
            stream = _Watched(await _open_stream(server))
            connection = ControlConnection(server, await _shake_hands(nursery, stream, server))
            stream.open = True
            nursery.start_soon(connection.keep_alive)
            task_status.started(connection)
            await connection.read()
            nursery.cancel_scope.cancel()
    except* ConnectionRejected as group:
        refusal = group.exceptions[0]
        assert isinstance(refusal, ConnectionRejected)
        raise _rejected(server, refusal.status_code, refusal.body) from None
    except* (_Strange, HandshakeError, ConnectionClosed, ProtocolError):
        if connection is None:  # after the handshake the connection just ends, and pending requests fail
            raise NoServer(f"the program at {server.url} is not a Callboard server") from None
    except* OSError as group:
        if connection is None:
            raise NoServer(f"no server answers at {server.url}: {_reason(group)}") from None
    finally:
        if connection is not None:
            connection.close()
        if stream is not None:
            await trio.aclose_forcefully(stream)


def _reason(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _reason(error.exceptions[0])
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return _reason(error.__cause__) if error.__cause__ is not None else str(error) or type(error).__name__


async def _open_stream(server: ControlServer) -> trio.abc.Stream:
    if not server.tls:
        return await trio.open_tcp_stream(server.host, server.port)
    return await trio.open_ssl_over_tcp_stream(server.host, server.port, https_compatible=True)


async def _shake_hands(nursery: trio.Nursery, stream: trio.abc.Stream, server: ControlServer) -> WebSocketConnection:
    shown = f"[{server.host}]" if ":" in server.host else server.host
    return await wrap_client_stream(
        nursery,
        stream,  # type: ignore[arg-type]  # any stream works, but its annotation is narrower
        f"{shown}:{server.port}",
        f"{server.path}?max_frame=0",  # 0: no limit, because results are displayed and written completely
        extra_headers=[(b"Authorization", b"Bearer " + server.token.encode())] if server.token else [],
        message_queue_size=64,
        max_message_size=_BIGGEST,
        receive_buffer_size=_BUFFER,
    )


class _Strange(Exception):
    """The peer hung up, or did not speak HTTP, before the websocket was open."""


class _Watched(trio.abc.Stream):
    """Stream that raises if it ends before the handshake; the library would wait forever."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.open = False
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            data = await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            if self.open:
                raise
            data = b""
        if not data and not self.open:
            raise _Strange
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _rejected(server: ControlServer, status: int, body: bytes | None) -> CallboardError:
    said = _refusal_text(body)
    if status == 401:
        hint = "give its token with --token or CALLBOARD_TOKEN" if not server.token else "the token is wrong"
        return Unauthorized(f"the server at {server.url} requires a token: {hint}")
    if status == 403:
        return Denied(f"the server at {server.url} refuses this client{said}")
    if status in (429, 503):
        return Saturated(f"the server at {server.url} accepts no more clients now{said}")
    return NoServer(f"the program at {server.url} has no control channel (HTTP status {status}){said}")


def _refusal_text(body: bytes | None) -> str:
    try:
        value = msgspec.json.decode(body or b"")
    except msgspec.MsgspecError:
        return ""
    error = value.get("error") if isinstance(value, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return f": {text[:300]}" if isinstance(text, str) and text else ""
