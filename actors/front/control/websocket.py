"""WebSocket transport of the control channel: one connection, from handshake to close.

    GET /ws or /acp     same protocol on both; `Authorization: Bearer T`, or the subprotocol `bearer.<base64url of T>`

The query parameter `max_frame=BYTES` limits frames to the client (0: no limit); see `peer`.

Close codes:

- 1001: the server stops.
- 1003: the client sent a binary frame.
- 1008: the API key was revoked or has expired.
- 1009: the client sent a frame that is too large.
- 4408: a ping was not answered, because the client vanished or stopped reading. The code differs from 1001 and 1008, so
  a client can react to each.

A frame that is not JSON gets an error as its answer and leaves the connection open.

Frames bypass wsproto: `WebSocketOutbox` writes its own, which is ten times as fast. It shares wsproto's stream lock,
because pings and close frames still come from wsproto. A frame cut off by a cancellation makes the rest of the stream
unreadable; `torn` records this, and no close frame follows.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qsl

import msgspec
import trio
import wsproto.utilities
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest
from trio_websocket import wrap_server_stream as wrap
from wsproto.connection import ConnectionState

from ....protocol.control.caller import Caller
from ....protocol.errors import CallboardError, Denied, NotFound, Saturated, Unauthorized, UsageError
from ...io.http.headers import joined
from ...io.outbox import Outbox, PeerClosed, Unread
from ...io.secret_redaction import hidden
from .peer import LARGEST, MAX_FRAME, SMALLEST, ControlPeer

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..access.access_control import AccessControl
    from .hub import Hub, Method

PATHS = ("/ws", "/acp")
SUBPROTOCOL = "callboard.v1"

CLOSE_WITHIN = 0.3
"""Seconds for the close handshake before the connection is cut."""

NO_PONG = 4408
"""Close code for a client that does not answer pings; RFC 6455 (7.4.2) leaves codes from 4000 to applications."""

_STATUS: tuple[tuple[type[CallboardError], int], ...] = (
    (Unauthorized, 401),
    (Denied, 403),
    (NotFound, 404),
    (Saturated, 503),
)

Methods: TypeAlias = Callable[[ControlPeer], Mapping[str, "Method"]]

_BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)

log = logging.getLogger("callboard.control")


class WebSocketOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and timeouts of a connection.

    Attributes:
        max_frame: limit in bytes of a frame from the client.
        max_frame_out: limit in bytes of a frame to the client, unless the client sets its own; 0: no limit.
        ping_every, pong_within: seconds between pings, and for each pong.
        handshake_within: seconds for the handshake.
    """

    max_frame: int = 1024 * 1024
    max_frame_out: int = MAX_FRAME
    ping_every: float = 20.0
    pong_within: float = 20.0
    handshake_within: float = 10.0


async def serve_websocket(
    me: Actor,
    stream: trio.abc.Stream,
    hub: Hub,
    access: AccessControl,
    *,
    peer: str = "",
    methods: Methods | None = None,
    options: WebSocketOptions | None = None,
) -> None:
    """Serve one connection until it closes.

    Args:
        me: the connection's actor.
        stream: the byte stream; its first bytes are the upgrade request.
        peer: the client's address, for `access`.
        methods: see `ControlPeer`.
    """
    options = options or WebSocketOptions()
    # Counts of this connection and its unread bytes end with the stack, whichever step fails.
    stack = contextlib.ExitStack()
    try:
        async with trio.open_nursery() as nursery:
            connection = await _shake_hands(nursery, stream, access, stack, peer, options)
            if connection is not None:
                websocket, caller, max_frame = connection
                silent = trio.Event()
                # The ping task also ends the connection of a client that stays connected but reads nothing.
                nursery.start_soon(_ping, websocket, options, silent, nursery.cancel_scope)
                unread = stack.enter_context(hub.unread.of(caller.subject))
                outbox = WebSocketOutbox(websocket, unread)
                stack.callback(outbox.close)
                nursery.start_soon(outbox.write)

                async def send(frame: bytes) -> None:
                    access.frame("out")
                    await outbox.put(frame)

                with access.connection(caller) as lasting:
                    ours = ControlPeer(
                        me,
                        hub,
                        caller,
                        access.paths.over_websocket(caller, send),
                        methods=methods,
                        access=access,
                        room=outbox.room,
                        turn=unread.turn,
                        max_frame=max_frame,
                    )
                    await _talk(ours, websocket, outbox, access, lasting, silent)
                await _hang_up(websocket, stream)
            # The writer and the ping task never end by themselves.
            nursery.cancel_scope.cancel()
    except* (ConnectionClosed, trio.BrokenResourceError, trio.ClosedResourceError, wsproto.utilities.ProtocolError):
        log.debug("%s: the connection broke", me.path)
    finally:
        stack.close()
        await trio.aclose_forcefully(stream)


async def _shake_hands(
    nursery: trio.Nursery,
    stream: trio.abc.Stream,
    access: AccessControl,
    stack: contextlib.ExitStack,
    peer: str,
    options: WebSocketOptions,
) -> tuple[WebSocketConnection, Caller, int] | None:
    """Answer the upgrade request and return the websocket, the caller and the limit of frames to the client.

    Returns None if the request was refused or did not arrive in time. `stack` holds the connection's slot in `access`.
    """
    with trio.move_on_after(options.handshake_within):
        request = await wrap(nursery, stream, max_message_size=options.max_frame)
        headers = _headers(request)
        try:
            if request.path.partition("?")[0] not in PATHS:
                raise NotFound(f"the websocket is served at {' and '.join(PATHS)}")
            max_frame = _limit_in(request.path, options.max_frame_out)
            # Checked before `accept`, so a refusal is an HTTP status instead of a close code.
            caller = await access.authenticate(headers, peer)
            stack.enter_context(access.websocket(caller))
        except CallboardError as error:
            await _refuse(request, error)
            return None
        # Accept only this name: an echo of `bearer.<token>` would put the key into a response header.
        offered = [name for name in request.proposed_subprotocols if name == SUBPROTOCOL]
        return await request.accept(subprotocol=offered[0] if offered else None), caller, max_frame
    return None


def _limit_in(path: str, usual: int) -> int:
    """Return the frame limit from the query, or `usual`.

    Raises:
        UsageError: `max_frame` is not a valid limit.
    """
    given = dict(parse_qsl(path.partition("?")[2])).get("max_frame")
    if given is None:
        return usual
    if given == "0" or (given.isascii() and given.isdigit() and SMALLEST <= int(given) <= LARGEST):
        return int(given)
    raise UsageError(f"`max_frame` must be a number of bytes from {SMALLEST} to {LARGEST}, or 0, not {given[:40]!r}")


def _headers(request: WebSocketRequest) -> dict[str, str]:
    """Return all headers; wsproto keeps the ones it parses apart from the others."""
    headers = joined(request.headers)
    headers.setdefault("host", request._event.host)  # noqa: SLF001 - it has no public accessor
    headers.setdefault("sec-websocket-protocol", ", ".join(request.proposed_subprotocols))
    return headers


async def _refuse(request: WebSocketRequest, error: CallboardError) -> None:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
    body = msgspec.json.encode({"error": {"code": error.code, "message": hidden(str(error))}})
    headers = [(b"Content-Type", b"application/json"), (b"Connection", b"close")]
    if status == 401:
        headers.append((b"WWW-Authenticate", b"Bearer"))
    await request.reject(status, extra_headers=headers, body=body)


async def _talk(
    peer: ControlPeer,
    websocket: WebSocketConnection,
    outbox: WebSocketOutbox,
    access: AccessControl,
    scope: trio.CancelScope,
    silent: trio.Event,
) -> None:
    try:
        while True:
            message = await websocket.get_message()
            access.frame("in")
            # 1003 is the code of RFC 6455 (7.4.1) for a type of data that the endpoint cannot accept.
            if isinstance(message, bytes):
                await _close(websocket, 1003, "only text frames are accepted")
                return
            await peer.receive(message.encode())
    except (ConnectionClosed, PeerClosed):
        return
    except trio.Cancelled:
        # A cancellation has three causes, checked in this order: revoked key, missing pong, server stop.
        with peer.me.cleanup():
            if scope.cancel_called:
                peer.close()  # first: a client without a valid key gets no further answers
                with trio.move_on_after(CLOSE_WITHIN):
                    await outbox.between()
                await _say_goodbye(websocket, outbox, 1008, "the key was revoked or has expired")
            elif silent.is_set():
                await _say_goodbye(websocket, outbox, NO_PONG, "a ping was not answered in time")
            else:
                with trio.move_on_after(CLOSE_WITHIN), contextlib.suppress(*_BROKEN):
                    await outbox.finish()
                await _say_goodbye(websocket, outbox, 1001, "the server is stopping")
        raise
    finally:
        peer.close()


class WebSocketOutbox(Outbox):
    """Outbox that writes its own frames: wsproto accepts one text at a time, at a tenth of the speed.

    Args:
        websocket: the connection; its lock orders these frames with wsproto's own (pings, close frames).

    Attributes:
        torn: whether the writer was interrupted within a frame; the client could not parse any later bytes.
    """

    def __init__(self, websocket: WebSocketConnection, unread: Unread) -> None:
        super().__init__(websocket._stream.send_all, head=_head, unread=unread)  # noqa: SLF001 - see the class
        self.torn = False
        self._websocket = websocket
        self._lock = websocket._stream_lock  # noqa: SLF001 - as above

    async def write_all(self) -> bool:
        """Write the waiting frames; returns False if the connection is no longer open."""
        async with self._lock:
            if self._websocket._wsproto.state is not ConnectionState.OPEN:  # noqa: SLF001 - as above
                return False
            # Set before the write: a cancellation within `send_all` leaves a partial frame on the wire.
            self.torn = True
            await super().write_all()
            self.torn = False
        return True

    async def finish(self) -> None:
        """Write the remaining frames after the writer has ended, unless it was interrupted within a frame."""
        if self._waiting and not self.torn:
            await self.write_all()

    async def between(self) -> None:
        """Wait until no frame is partly written; `torn` is set if the writer was interrupted within one."""
        async with self._lock:
            pass


_TEXT = 0x81
"""First byte of an unfragmented text frame; frames from a server are not masked (RFC 6455, 5.1)."""


def _head(size: int) -> bytes:
    if size < 126:
        return bytes((_TEXT, size))
    if size < 65536:
        return struct.pack("!BBH", _TEXT, 126, size)
    return struct.pack("!BBQ", _TEXT, 127, size)


async def _say_goodbye(websocket: WebSocketConnection, outbox: WebSocketOutbox, code: int, reason: str) -> None:
    """Send a close frame, unless the stream ends within another frame."""
    if not outbox.torn:
        await _close(websocket, code, reason)


async def _close(websocket: WebSocketConnection, code: int, reason: str) -> None:
    with trio.move_on_after(CLOSE_WITHIN), contextlib.suppress(wsproto.utilities.LocalProtocolError):
        await websocket.aclose(code, reason)


async def _hang_up(websocket: WebSocketConnection, stream: trio.abc.Stream) -> None:
    """Drain the stream after a frame that was too large.

    Closing a socket with unread input resets the connection, and the client could miss the close frame.
    """
    closed = websocket.closed
    if closed is None or closed.code != 1009:
        return
    with trio.move_on_after(CLOSE_WITHIN), contextlib.suppress(*_BROKEN):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        while await stream.receive_some(65536):
            pass


async def _ping(
    websocket: WebSocketConnection, options: WebSocketOptions, silent: trio.Event, connection: trio.CancelScope
) -> None:
    """Cancel the connection when a ping is not answered in time."""
    with contextlib.suppress(ConnectionClosed, wsproto.utilities.LocalProtocolError):
        while True:
            await trio.sleep(options.ping_every)
            with trio.move_on_after(options.pong_within) as limit:
                await websocket.ping()
            if limit.cancelled_caught:
                silent.set()
                connection.cancel()
                return
