"""Serving over HTTP: `asgi.App` behind hypercorn's protocols (the extra `server`).

Only the part of hypercorn that speaks HTTP on one connection is used. It shields what it sends, so that a client that
does not read could hold up our end for ever. So the connections are ours, and are cut when we end.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any, cast

import trio

from ....protocol.errors import ConfigError, UsageError
from ....supervisors import Actor
from ...runs.root import Root
from .asgi import LOOPBACK, PATH, App
from .offers import Offer
from .service import Options, Service, serve

log = logging.getLogger("callboard.mcp_server")

BACKLOG = 1024
KEEP_ALIVE = 60
"""Seconds that a connection may be idle; longer than clients keep theirs, so that it is they who hang up."""


async def serve_http(
    root: Root,
    offers: Mapping[str, Offer],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    origins: tuple[str, ...] = (),
    options: Options | None = None,
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serve until the root stops.

    Args:
        root: what the runs run under.
        offers: see `read_agents`.
        host, port: where to listen; port 0 for a free one.
        token: what clients have to show as `Authorization: Bearer`. Beyond the loopback interface there has to be one.
        origins: web origins whose pages may call us.
        on_listening: told the URL once requests are taken.

    Raises:
        UsageError: the address can't be listened on, or would be open to all.
        ConfigError: hypercorn is not there.
    """
    if host not in LOOPBACK and not token:
        raise UsageError(
            f"whoever reaches {host} could run the agents: give a token (--token-file FILE), or listen on 127.0.0.1"
        )
    try:
        import hypercorn.trio.tcp_server  # noqa: F401 - to say so before anything is started
    except ImportError as error:
        raise ConfigError(
            f"serving over HTTP needs hypercorn ({error}): pip install 'callboard[server]', or serve over stdio"
        ) from None
    listener = _listen(host, port)

    async def body(me: Actor) -> None:
        service = Service(me, root, offers, options or Options())
        app = App(service, token=token, only_loopback=host in LOOPBACK, origins=origins)
        with service.answering():
            await _serve(app, listener)

    if on_listening is not None:
        shown = f"[{host}]" if ":" in host else host
        on_listening(f"http://{shown}:{listener.socket.getsockname()[1]}{PATH}")
    await serve(root, body)


def _listen(host: str, port: int) -> trio.SocketListener:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = (
            os.strerror(number) if number and number in errno.errorcode else str(error)
        )  # that of Python tells the address again
        other = "; --port takes another one" if number == errno.EADDRINUSE else ""
        raise UsageError(f"can't listen on {host}:{port}: {why}{other}") from None
    sock.setblocking(False)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


async def _serve(app: App, listener: trio.SocketListener) -> None:
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
    speaks: Any = TCPServer  # typed for TLS alone
    wrapped = ASGIWrapper(cast("Any", app))
    open: set[trio.SocketStream] = set()

    async def connected(stream: trio.SocketStream) -> None:
        open.add(stream)
        try:
            await speaks(wrapped, config, context, ConnectionState({}), stream)
        except* Exception as crashes:  # noqa: BLE001 - some bytes crash hypercorn (an HTTP/2 CONNECT), before any token
            log.warning("a connection was dropped: %r", crashes.exceptions)
        finally:
            open.discard(stream)
            stream.socket.close()

    async def cut() -> None:
        try:
            await trio.sleep_forever()
        finally:
            for stream in open:
                stream.socket.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        await trio.serve_listeners(connected, [listener], handler_nursery=nursery)
