"""HTTP on a connection of ours: hypercorn's protocols around an application, or three lines that say what is missing.

Of hypercorn only the part is used that speaks on one connection; see `mcp_server.http` for what that has taught.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from .listener import Opened

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = logging.getLogger("callboard.http")

KEEP_ALIVE = 60.0
"""Seconds that a connection may be idle; longer than clients keep theirs, so that it is they who hang up."""

MISSING = "callboard: HTTP is not served here, only the websocket at /ws: pip install 'callboard[server]'\n"


def speaker_of(app: ASGIApp) -> Callable[[Opened], Awaitable[None]]:
    """What speaks HTTP on one connection at a time and has the application answer."""
    from hypercorn.app_wrappers import ASGIWrapper
    from hypercorn.config import Config
    from hypercorn.trio.tcp_server import TCPServer
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import ConnectionState

    config = Config()
    config.errorlog = log
    config.keep_alive_timeout = KEEP_ALIVE
    config.include_server_header = False
    context = WorkerContext(None)
    wrapped = ASGIWrapper(cast("Any", app))
    speaks: Any = TCPServer  # typed for TLS alone

    async def speak(connection: Opened) -> None:
        await speaks(wrapped, config, context, ConnectionState({}), connection)

    return speak


async def say_missing(connection: Opened) -> None:
    """What HTTP requests get where the extra `server` is not installed."""
    body = MISSING.encode()
    head = "HTTP/1.1 501 Not Implemented\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    await connection.send_all(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await connection.send_eof()
