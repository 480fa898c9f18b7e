"""Transports of the MCP server: the parent process over stdin and stdout, or many clients over HTTP (extra `server`).

On pipes one line is one message, and the end of the input ends the connection: open requests are cancelled, queued
messages are sent. A slow client misses progress notifications. Over HTTP `asgi.App` answers, with the connections of
`callboard serve`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

from ....protocol.errors import ConfigError, UsageError
from ....protocol.settings.api import LOOPBACK, ApiLimits, ApiSettings
from ....supervisors import Actor
from ....supervisors.installation import install_command
from ...io.imports import imported
from ...io.json_schema import LIBRARY
from ...io.outbox import over_pipes, private_stdio
from ...runs.root import Root, played
from .service import OfferedAgent, Service, ServiceOptions
from .session import McpSession

MOST = 1_000_000
"""Maximum number of connections; in effect the limit of open files applies."""


async def serve_stdio(
    root: Root,
    offers: Mapping[str, OfferedAgent],
    *,
    options: ServiceOptions | None = None,
    pipes: tuple[int, int] | None = None,
) -> None:
    """Serve until the client closes stdin, or the root stops.

    Args:
        root: root of the runs.
        offers: see `read_agents`.
        pipes: two descriptors in place of stdin and stdout, which are closed at the end.
    """

    async def body(me: Actor) -> None:
        me.spawn(lambda _: imported(*LIBRARY), name="imports", link=False)  # for the arguments of the first call
        service = Service(me, root, offers, options or ServiceOptions())
        with service.answering():
            async with over_pipes(me, source, sink) as (messages, outbox):
                session = McpSession(service, outbox.put_nowait)
                async for line in messages:
                    await session.receive(line)
                session.close()

    with private_stdio() if pipes is None else nullcontext(pipes) as (source, sink):
        await played(root, body, name="mcp-server")


async def serve_http(
    root: Root,
    offers: Mapping[str, OfferedAgent],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    origins: tuple[str, ...] = (),
    options: ServiceOptions | None = None,
    on_listening: Callable[[str], None] | None = None,
) -> None:
    """Serve until the root stops.

    Args:
        root: root of the runs.
        offers: see `read_agents`.
        host, port: address; port 0 for a free one.
        token: required token of clients, in `Authorization: Bearer`. Mandatory beyond the loopback interface.
        origins: web origins whose pages may call the server.
        on_listening: callback for the URL once requests are accepted.

    Raises:
        UsageError: the address can't be bound, or would be open to everyone.
        ConfigError: hypercorn is not installed.
    """
    if host not in LOOPBACK and not token:
        raise UsageError(
            f"every client that reaches {host} could run the agents: set a token (--token-file FILE), or "
            "listen on 127.0.0.1"
        )
    from ..access.limits import ConnectionLimiter
    from ..server.listener import listen, serve_port

    try:
        import hypercorn.trio.tcp_server  # noqa: F401 - to say so before anything is started

        from ..server.listener import speaker_of
        from .asgi import PATH, App
    except ImportError as error:
        raise ConfigError(
            f"serving over HTTP needs hypercorn ({error}); run: {install_command('server')}, or serve over stdio"
        ) from None
    listener = listen(host, port)
    limits = ApiSettings(limits=ApiLimits(max_connections=MOST, connections_per_address=MOST))

    async def body(me: Actor) -> None:
        me.spawn(lambda _: imported(*LIBRARY), name="imports", link=False)  # for the arguments of the first call
        service = Service(me, root, offers, options or ServiceOptions())
        http = speaker_of(App(service, token=token, only_loopback=host in LOOPBACK, origins=origins))
        with service.answering():
            await serve_port(listener, ConnectionLimiter(lambda: limits), http=http)

    if on_listening is not None:
        shown = f"[{host}]" if ":" in host else host
        on_listening(f"http://{shown}:{listener.socket.getsockname()[1]}{PATH}")
    await played(root, body, name="mcp-server")
