"""HTTP on one connection: hypercorn's protocols around an application, or a short reply without hypercorn.

Only the part of hypercorn that handles one connection is used. hypercorn shields its sends, so a client that does not
read could delay the end of the server without limit. So the server owns the connections (`listener`) and cuts them when
it ends.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import trio

from . import listener
from .listener import InspectedStream

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("callboard.http")

KEEP_ALIVE = 60.0
"""Seconds that a connection may be idle.

Clients use shorter limits, so they close it first.
"""

MISSING = "callboard: HTTP is not served here, only the websocket at /ws: the extra `server` is not installed\n"
TOO_LATE = (
    b'{"error": {"code": "usage", "message": "a websocket needs a connection of its own: '
    b'the request to upgrade has to be the first that is made on it"}}'
)


def speaker_of(app: ASGIApp) -> Callable[[InspectedStream], Awaitable[None]]:
    """Return the HTTP handler of connections, which has the application answer."""
    import h11
    from hypercorn.app_wrappers import ASGIWrapper
    from hypercorn.config import Config
    from hypercorn.events import Closed, Event, RawData, Updated
    from hypercorn.protocol.h11 import H11Protocol
    from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import ConnectionState

    class Connection(TCPServer):
        """A connection that ends when its client disconnects, or when a request's head takes too long.

        hypercorn alone would wait for the long idle timeout in both cases.
        """

        over = False

        async def _read_data(self) -> None:
            head = trio.CancelScope()  # the deadline belongs to a head that has begun
            while True:
                data = b""
                with contextlib.suppress(trio.ClosedResourceError, trio.BrokenResourceError), head:
                    data = bytes(await self.stream.receive_some(MAX_RECV))
                if not data:  # the client has disconnected, or was too slow
                    break
                await self.protocol.handle(RawData(data))
                head = trio.CancelScope(deadline=self._deadline(head.deadline))
            await self.protocol.handle(Closed())
            self.over = True
            await self.idle_task.stop()

        def _deadline(self, before: float) -> float:
            """Return the time at which the begun head has to be complete; infinite if no head has begun."""
            speaking = self.protocol.protocol
            if isinstance(speaking, H11Protocol):
                idle = speaking.connection.their_state is h11.IDLE
                begun = bool(speaking.connection.trailing_data[0])
            else:
                idle, held = speaking.idle, speaking.connection.incoming_buffer
                begun = bool(held._data or held._headers_buffer)  # noqa: SLF001 - no public view of half a frame
            return min(before, trio.current_time() + listener.HEAD_WITHIN) if idle and begun else math.inf

        async def protocol_send(self, event: Event) -> None:
            if not (self.over and isinstance(event, Updated)):
                await super().protocol_send(event)

    config = Config()
    config.errorlog = log
    config.keep_alive_timeout = KEEP_ALIVE
    config.include_server_header = False
    context = WorkerContext(None)
    wrapped = ASGIWrapper(cast("Any", without_websockets(app)))
    speaks: Any = Connection  # its annotations assume TLS

    async def speak(connection: InspectedStream) -> None:
        await speaks(wrapped, config, context, ConnectionState({}), connection)

    return speak


def without_websockets(app: ASGIApp) -> ASGIApp:
    """Wrap an application; refuse a websocket upgrade on a connection that has already carried HTTP."""

    async def spoken(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await app(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(TOO_LATE)).encode())]
        await receive()
        await send({"type": "websocket.http.response.start", "status": 400, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": TOO_LATE})

    return spoken


async def say_missing(connection: InspectedStream) -> None:
    """Answer every HTTP request with 501, because the extra `server` is not installed."""
    body = MISSING.encode()
    head = "HTTP/1.1 501 Not Implemented\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    await connection.send_all(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await connection.send_eof()
