"""Serving the client that has started us, over stdin and stdout, or many over HTTP (the extra `server`).

On pipes one line is one message, and the end of the input ends the connection: open requests are cancelled, queued
messages are sent. A slow client misses notifications of progress. Over HTTP `asgi.App` answers, and connections are
those of `callboard serve`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

from ....protocol.errors import ConfigError, UsageError
from ....protocol.settings.api import ApiLimits, ApiSettings
from ....protocol.settings.api_checks import LOOPBACK
from ....supervisors import Actor
from ...io.imports import imported
from ...io.json_schema import LIBRARY
from ...io.stdio import over_pipes, private_stdio
from ...runs.root import Root, played
from .offers import Offer
from .service import Options, Service
from .session import Session

MOST = 1_000_000
"""Connections; what bounds them is the number of files that the process may have open."""


async def serve_stdio(
    root: Root,
    offers: Mapping[str, Offer],
    *,
    options: Options | None = None,
    pipes: tuple[int, int] | None = None,
) -> None:
    """Serve until the client closes our stdin, or the root stops.

    Args:
        root: what the runs run under.
        offers: see `read_agents`.
        pipes: two descriptors in place of stdin and stdout, which are closed at the end.
    """

    async def body(me: Actor) -> None:
        me.spawn(lambda _: imported(*LIBRARY), name="imports", link=False)  # for the arguments of the first call
        service = Service(me, root, offers, options or Options())
        with service.answering():
            async with over_pipes(me, source, sink) as (messages, outbox):
                session = Session(service, outbox.put_nowait)
                async for line in messages:
                    await session.receive(line)
                session.close()

    with private_stdio() if pipes is None else nullcontext(pipes) as (source, sink):
        await played(root, body, name="mcp-server")


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
            f"every client that reaches {host} could run the agents: give a token (--token-file FILE), "
            "or listen on 127.0.0.1"
        )
    from ..access.limits import ConnectionLimiter
    from ..server.listener import listen, serve_port

    try:
        import hypercorn.trio.tcp_server  # noqa: F401 - to say so before anything is started

        from ..server.speaking import speaker_of
        from .asgi import PATH, App
    except ImportError as error:
        raise ConfigError(
            f"serving over HTTP needs hypercorn ({error}): pip install 'callboard[server]', or serve over stdio"
        ) from None
    listener = listen(host, port)
    limits = ApiSettings(limits=ApiLimits(max_connections=MOST, connections_per_address=MOST))

    async def body(me: Actor) -> None:
        me.spawn(lambda _: imported(*LIBRARY), name="imports", link=False)  # for the arguments of the first call
        service = Service(me, root, offers, options or Options())
        http = speaker_of(App(service, token=token, only_loopback=host in LOOPBACK, origins=origins))
        with service.answering():
            await serve_port(listener, ConnectionLimiter(lambda: limits), http=http)

    if on_listening is not None:
        shown = f"[{host}]" if ":" in host else host
        on_listening(f"http://{shown}:{listener.socket.getsockname()[1]}{PATH}")
    await played(root, body, name="mcp-server")
