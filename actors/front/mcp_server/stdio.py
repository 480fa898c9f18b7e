"""Serves the client that has started us, over our stdin and stdout (`io.stdio`): one line, one message.

The end of the input ends the connection: open requests are cancelled, queued messages are sent. A slow client misses
notifications of progress.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....supervisors import Actor
from ...io.stdio import over_pipes, private_stdio
from ...runs.root import Root
from .offers import Offer
from .service import Options, Service, serve
from .session import Session


async def serve_stdio(root: Root, offers: Mapping[str, Offer], *, options: Options | None = None) -> None:
    """Serve until the client closes our stdin, or the root stops.

    Args:
        root: what the runs run under.
        offers: see `read_agents`.
    """
    with private_stdio() as (source, sink):
        await serve_pipes(root, offers, source, sink, options=options)


async def serve_pipes(
    root: Root, offers: Mapping[str, Offer], source: int, sink: int, *, options: Options | None = None
) -> None:
    """As `serve_stdio`, over two descriptors, which are closed at the end."""

    async def body(me: Actor) -> None:
        service = Service(me, root, offers, options or Options())
        with service.answering():
            async with over_pipes(me, source, sink) as (messages, outbox):
                session = Session(service, outbox.put_nowait)
                async for line in messages:
                    await session.receive(line)
                session.close()

    await serve(root, body)
