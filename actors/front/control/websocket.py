"""Frames over a websocket: one accepted connection, from its handshake to its end.

    GET /ws or /acp        both speak the same; `Authorization: Bearer T`, or the subprotocol `bearer.<base64url of T>`

An unanswered ping reveals a client that has vanished, and one that has stopped reading. A
frame that is too large closes the connection (1009), as do binary ones (1003); a frame that is no JSON is answered.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import trio
import wsproto.utilities
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest
from trio_websocket import wrap_server_stream as wrap
from wsproto.connection import ConnectionState

from ....protocol.control.caller import Caller
from ....protocol.errors import CallboardError, Denied, NotFound, Saturated, Unauthorized
from ...io.handed_out import hidden
from ...io.http.headers import joined
from ...io.outbox import Gone, Outbox, Unread
from .peer import Method, Peer

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..access.access_control import AccessControl
    from .hub import Hub

PATHS = ("/ws", "/acp")
SUBPROTOCOL = "callboard.v1"

CLOSE_WITHIN = 0.3
"""Seconds for the closing words; then the connection is cut."""

_STATUS: tuple[tuple[type[CallboardError], int], ...] = (
    (Unauthorized, 401),
    (Denied, 403),
    (NotFound, 404),
    (Saturated, 503),
)

Methods: TypeAlias = Callable[[Peer], Mapping[str, Method]]

_BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)

log = logging.getLogger("callboard.control")


class WebSocketOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a connection is treated.

    Attributes:
        max_frame: bytes of a frame from the client.
        ping_every, pong_within: seconds.
        handshake_within: seconds.
    """

    max_frame: int = 1024 * 1024
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
    """Serve one connection, to its end.

    Args:
        me: the connection's actor.
        stream: its first bytes are the request to upgrade.
        peer: the client's address, for `access`.
        methods: see `Peer`.
    """
    options = options or WebSocketOptions()
    stack = contextlib.ExitStack()
    try:
        async with trio.open_nursery() as nursery:
            connection = await _shake_hands(nursery, stream, access, stack, peer, options)
            if connection is not None:
                websocket, caller = connection
                nursery.start_soon(_ping, websocket, options, nursery.cancel_scope)
                unread = stack.enter_context(hub.unread.of(caller.subject))
                outbox = WebSocketOutbox(websocket, unread)
                stack.callback(outbox.close)
                nursery.start_soon(outbox.write)

                async def send(frame: bytes) -> None:
                    access.frame("out")
                    await outbox.put(frame)

                with access.connection(caller) as lasting:
                    ours = Peer(
                        me, hub, caller, send, methods=methods, access=access, room=outbox.room, turn=unread.turn
                    )
                    await _talk(ours, websocket, outbox, access, lasting)
                await _hang_up(websocket, stream)
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
) -> tuple[WebSocketConnection, Caller] | None:
    """Answer the request to upgrade; None if it was refused, or never came. `stack` counts the websocket."""
    with trio.move_on_after(options.handshake_within):
        request = await wrap(nursery, stream, max_message_size=options.max_frame)
        headers = _headers(request)
        try:
            if request.path.partition("?")[0] not in PATHS:
                raise NotFound(f"the websocket is at {' and '.join(PATHS)}")
            caller = await access.authenticate(headers, peer)
            stack.enter_context(access.websocket(caller))
        except CallboardError as error:
            await _refuse(request, error)
            return None
        offered = [name for name in request.proposed_subprotocols if name == SUBPROTOCOL]
        return await request.accept(subprotocol=offered[0] if offered else None), caller
    return None


def _headers(request: WebSocketRequest) -> dict[str, str]:
    """All of them; wsproto keeps those it understands apart."""
    headers = joined(request.headers)
    headers.setdefault("host", request._event.host)  # noqa: SLF001 - there is no other way to it
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
    peer: Peer,
    websocket: WebSocketConnection,
    outbox: WebSocketOutbox,
    access: AccessControl,
    scope: trio.CancelScope,
) -> None:
    try:
        while True:
            message = await websocket.get_message()
            access.frame("in")
            if isinstance(message, bytes):
                await _close(websocket, 1003, "frames are text")
                return
            await peer.receive(message.encode())
    except (ConnectionClosed, Gone):
        return
    except trio.Cancelled:
        with peer.me.cleanup():
            if scope.cancel_called:
                peer.close()  # nothing new is said to a stranger
                with trio.move_on_after(CLOSE_WITHIN):
                    await outbox.between()
                await _say_goodbye(websocket, outbox, 1008, "the key was revoked or has expired")
            else:
                with trio.move_on_after(CLOSE_WITHIN), contextlib.suppress(*_BROKEN):
                    await outbox.finish()
                await _say_goodbye(websocket, outbox, 1001, "the server is stopping")
        raise
    finally:
        peer.close()


class WebSocketOutbox(Outbox):
    """Writes frames of its own making: wsproto takes one text at a time, at a tenth of the speed.

    Args:
        websocket: to whom; its own frames (pings, closing words) take turns with ours.

    Attributes:
        torn: whether the writer was interrupted in the middle of a frame: nothing that follows could be read.
    """

    def __init__(self, websocket: WebSocketConnection, unread: Unread) -> None:
        super().__init__(websocket._stream.send_all, head=_head, unread=unread)  # noqa: SLF001 - see the class
        self.torn = False
        self._websocket = websocket
        self._lock = websocket._stream_lock  # noqa: SLF001 - as above

    async def write_all(self) -> bool:
        """See `Outbox`."""
        async with self._lock:
            if self._websocket._wsproto.state is not ConnectionState.OPEN:  # noqa: SLF001 - as above
                return False
            self.torn = True
            await super().write_all()
            self.torn = False
        return True

    async def finish(self) -> None:
        """After the writer has ended: write what is left, unless half a frame is out already."""
        if self._waiting and not self.torn:
            await self.write_all()

    async def between(self) -> None:
        """Wait until no frame is half out; if the writer was interrupted in one, `torn` says so."""
        async with self._lock:
            pass


_TEXT = 0x81
"""A text frame that is whole; what a server sends is not masked."""


def _head(size: int) -> bytes:
    if size < 126:
        return bytes((_TEXT, size))
    if size < 65536:
        return struct.pack("!BBH", _TEXT, 126, size)
    return struct.pack("!BBQ", _TEXT, 127, size)


async def _say_goodbye(websocket: WebSocketConnection, outbox: WebSocketOutbox, code: int, reason: str) -> None:
    """The closing words, unless they would come in the middle of a frame."""
    if not outbox.torn:
        await _close(websocket, code, reason)


async def _close(websocket: WebSocketConnection, code: int, reason: str) -> None:
    with trio.move_on_after(CLOSE_WITHIN), contextlib.suppress(wsproto.utilities.LocalProtocolError):
        await websocket.aclose(code, reason)


async def _hang_up(websocket: WebSocketConnection, stream: trio.abc.Stream) -> None:
    """After a frame that was too large: take what still comes, or the client would never see why we close."""
    closed = websocket.closed
    if closed is None or closed.code != 1009:
        return
    with trio.move_on_after(CLOSE_WITHIN), contextlib.suppress(*_BROKEN):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        while await stream.receive_some(65536):
            pass


async def _ping(websocket: WebSocketConnection, options: WebSocketOptions, connection: trio.CancelScope) -> None:
    """Cut the connection when the client is not there any more."""
    with contextlib.suppress(ConnectionClosed, wsproto.utilities.LocalProtocolError):
        while True:
            await trio.sleep(options.ping_every)
            with trio.move_on_after(options.pong_within) as limit:
                await websocket.ping()
            if limit.cancelled_caught:
                connection.cancel()
                return
