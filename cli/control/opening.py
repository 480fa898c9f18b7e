"""Opens connections: reaches the server, shakes hands, compares the versions of the protocol.

trio-websocket raises what a server answers to the handshake in the nursery it was given, and waits for ever for one
that hangs up. So each connection has a task with a nursery of its own (`_hold`), and a stream that tells of its early
end.
"""

from __future__ import annotations

import os

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

from ...protocol.control.own import VERSION
from ...protocol.errors import CallboardError, Denied, NoServer, Saturated, ServerLost, Unauthorized, Unsupported
from .connection import Connection
from .servers import Server

WITHIN = 10.0
"""Seconds to get a connection."""

_BIGGEST = 256 * 1024 * 1024
"""Bytes of a frame: a run's outcome has its whole state."""

_BUFFER = 65_536


class _Info(msgspec.Struct):
    protocol: int = 0
    version: str = ""


async def open_connection(nursery: trio.Nursery, server: Server) -> Connection:
    """Connect; what comes in is read by a task of `nursery`, which ends with the connection.

    Raises:
        NoServer: no callboard answers there.
        ServerLost: it does not answer.
        Unauthorized, Denied, Saturated: it does not let us in.
        Unsupported: it speaks another version of the protocol.
    """
    connection: Connection | None = None
    with trio.move_on_after(WITHIN):
        connection = await nursery.start(_hold, server)
    if connection is None:
        plain = "; if it speaks no TLS, its address begins with http://" if server.tls else ""
        raise ServerLost(f"the server at {server.url} does not answer within {WITHIN:g} s{plain}")
    try:
        info = msgspec.json.decode(await connection.request("_server/info", {}), type=_Info)
    except msgspec.ValidationError:
        info = _Info()
    if info.protocol != VERSION:
        connection.close()
        raise Unsupported(
            f"the server at {server.url} speaks version {info.protocol} of the control protocol, "
            f"this callboard version {VERSION}: use the same callboard on both sides"
        )
    return connection


async def _hold(server: Server, task_status: trio.TaskStatus[Connection]) -> None:
    """Own a connection as long as it is up. The library tells what goes wrong to the nursery it is given."""
    stream: _Watched | None = None
    connection: Connection | None = None
    try:
        async with trio.open_nursery() as nursery:
            stream = _Watched(await _open_stream(server))
            connection = Connection(server, await _shake_hands(nursery, stream, server))
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
        if connection is None:  # else it is over, and waiting calls fail
            raise NoServer(f"what listens at {server.url} is no server of callboard") from None
    except* OSError as group:
        if connection is None:
            raise NoServer(f"no server answers at {server.url}: {_reason(group)}") from None
    finally:
        if connection is not None:
            connection.close()
        if stream is not None:
            await trio.aclose_forcefully(stream)


def _reason(error: BaseException) -> str:
    """What the system says; trio only says that it has tried all addresses."""
    if isinstance(error, BaseExceptionGroup):
        return _reason(error.exceptions[0])
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return _reason(error.__cause__) if error.__cause__ is not None else str(error) or type(error).__name__


async def _open_stream(server: Server) -> trio.abc.Stream:
    if not server.tls:
        return await trio.open_tcp_stream(server.host, server.port)
    return await trio.open_ssl_over_tcp_stream(server.host, server.port, https_compatible=True)


async def _shake_hands(nursery: trio.Nursery, stream: trio.abc.Stream, server: Server) -> WebSocketConnection:
    shown = f"[{server.host}]" if ":" in server.host else server.host
    return await wrap_client_stream(
        nursery,
        stream,  # type: ignore[arg-type]  # any stream will do, its types say less
        f"{shown}:{server.port}",
        server.path,
        extra_headers=[(b"Authorization", b"Bearer " + server.token.encode())] if server.token else [],
        message_queue_size=64,
        max_message_size=_BIGGEST,
        receive_buffer_size=_BUFFER,
    )


class _Strange(Exception):
    """The other side hung up, or spoke no HTTP, before there was a websocket."""


class _Watched(trio.abc.Stream):
    """A stream whose end before the handshake is an error, for which the library would wait for ever."""

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


def _rejected(server: Server, status: int, body: bytes | None) -> CallboardError:
    said = _said(body)
    if status == 401:
        hint = "give its token with --token or CALLBOARD_TOKEN" if not server.token else "the token is not right"
        return Unauthorized(f"the server at {server.url} wants a token: {hint}")
    if status == 403:
        return Denied(f"the server at {server.url} refuses this client{said}")
    if status in (429, 503):
        return Saturated(f"the server at {server.url} takes no more clients now{said}")
    return NoServer(f"what listens at {server.url} offers no control channel (HTTP status {status}){said}")


def _said(body: bytes | None) -> str:
    try:
        value = msgspec.json.decode(body or b"")
    except msgspec.MsgspecError:
        return ""
    error = value.get("error") if isinstance(value, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return f": {text[:300]}" if isinstance(text, str) and text else ""
