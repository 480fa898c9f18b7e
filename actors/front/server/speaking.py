"""HTTP on one connection: hypercorn's protocols around an application, or a short reply without hypercorn.

Only the part of hypercorn that speaks HTTP on one connection is used. It shields what it sends, so that a client that
does not read could hold up our end for ever. So the connections are ours (`listener`), and are cut when we end.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import trio

from . import listener
from .listener import Opened

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("callboard.http")

KEEP_ALIVE = 60.0
"""Seconds that a connection may be idle; longer than clients keep theirs, so that it is they who hang up."""

MISSING = "callboard: HTTP is not served here, only the websocket at /ws: pip install 'callboard[server]'\n"
TOO_LATE = (
    b'{"error": {"code": "usage", "message": "a websocket needs a connection of its own: '
    b'the request to upgrade has to be the first that is made on it"}}'
)


def speaker_of(app: ASGIApp) -> Callable[[Opened], Awaitable[None]]:
    """What speaks HTTP on one connection at a time and has the application answer."""
    import h11
    from hypercorn.app_wrappers import ASGIWrapper
    from hypercorn.config import Config
    from hypercorn.events import Closed, Event, RawData, Updated
    from hypercorn.protocol.h11 import H11Protocol
    from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import ConnectionState

    class Connection(TCPServer):
        """One connection; over when its client has left, where hypercorn would wait for it to be idle for long.

        So it is when a head takes too long, where hypercorn would wait for as long as for an idle client.
        """

        over = False

        async def _read_data(self) -> None:
            head = trio.CancelScope()  # its deadline is that of a head that has begun
            while True:
                data = b""
                with contextlib.suppress(trio.ClosedResourceError, trio.BrokenResourceError), head:
                    data = bytes(await self.stream.receive_some(MAX_RECV))
                if not data:  # the client has left, or was too slow
                    break
                await self.protocol.handle(RawData(data))
                head = trio.CancelScope(deadline=self._deadline(head.deadline))
            await self.protocol.handle(Closed())
            self.over = True
            await self.idle_task.stop()

        def _deadline(self, before: float) -> float:
            """Until when the head that has begun has to be there; never, if none has."""
            speaking = self.protocol.protocol
            if isinstance(speaking, H11Protocol):
                idle = speaking.connection.their_state is h11.IDLE
                begun = bool(speaking.connection.trailing_data[0])
            else:
                idle, held = speaking.idle, speaking.connection.incoming_buffer
                begun = bool(held._data or held._headers_buffer)  # noqa: SLF001 - nothing else tells of half a frame
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
    speaks: Any = Connection  # typed for TLS alone

    async def speak(connection: Opened) -> None:
        await speaks(wrapped, config, context, ConnectionState({}), connection)

    return speak


def without_websockets(app: ASGIApp) -> ASGIApp:
    """The application, and an answer for who asks for a websocket on a connection that has spoken HTTP before."""

    async def spoken(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await app(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(TOO_LATE)).encode())]
        await receive()
        await send({"type": "websocket.http.response.start", "status": 400, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": TOO_LATE})

    return spoken


async def say_missing(connection: Opened) -> None:
    """What HTTP requests get where the extra `server` is not installed."""
    body = MISSING.encode()
    head = "HTTP/1.1 501 Not Implemented\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    await connection.send_all(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await connection.send_eof()
