"""Serving the one client that has started us, over our stdin and stdout (`io.stdio`): one line, one message.

The end of the input is the client's goodbye: what it waits for is cancelled, what has been said is sent. What a slow
client is told of progress is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....protocol.jsonrpc import PARSE_ERROR, Notification, Request, decode_all, encode_failure
from ....supervisors import Actor
from ...io.outbox import Outbox
from ...io.stdio import over_pipes, private_stdio
from ...runs.root import Root
from .offers import Offer
from .service import Options, Service, serve
from .session import Leg, Refused, Session, refusal


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
        session = Session(service)
        with service.answering():
            async with over_pipes(me, source, sink) as (messages, outbox):
                async for line in messages:
                    _read(me, session, outbox, line)
                session.close()

    await serve(root, body)


def _read(me: Actor, session: Session, outbox: Outbox, line: bytes) -> None:
    """Do what a line says."""
    try:
        messages = decode_all(line)
    except (ValueError, RecursionError) as error:
        outbox.put_nowait(encode_failure(None, PARSE_ERROR, f"this line is no JSON-RPC message: {error}"))
        return
    for message in messages:
        if isinstance(message, Request):
            try:
                answer = session.receive(message)
            except Refused as refused:
                answer = refusal(message.id, refused)
            if isinstance(answer, Leg):
                me.spawn(_play, session, answer, outbox, name="request", link=False)
            else:
                outbox.put_nowait(answer)
        elif isinstance(message, Notification):
            session.notified(message)
        else:
            session.answered(message)


async def _play(_: Actor, session: Session, leg: Leg, outbox: Outbox) -> None:
    answer = await session.play(leg, outbox.put_nowait)
    if answer is not None:
        outbox.put_nowait(answer)
