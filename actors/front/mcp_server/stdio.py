"""Serving the one client that has started us, over our stdin and stdout: one line, one message.

Nothing else may get in between. So while we serve, descriptor 1 is stderr and descriptor 0 is empty, for all of this
process and for what it starts; the protocol has private copies of the real ones. The end of the input is the client's
goodbye: what it waits for is cancelled, what has been said is sent.

The client may be slow to read. What it is told waits in the outbox; beyond `BEHIND` bytes progress is dropped, and no
more requests are read until it has caught up.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager

import trio

from ....protocol.jsonrpc import PARSE_ERROR, Notification, Request, decode_all, encode_failure
from ....supervisors import Actor
from ...runs.root import Root
from .offers import Offer
from .service import Options, Service, serve
from .session import Leg, Refused, Session, refusal

MAX_LINE = 16 * 1024 * 1024
"""Bytes of one message at most; a longer one is refused unread."""

BEHIND = 1024 * 1024
CHUNK = 65_536
FLUSH_WITHIN = 1.0
"""Seconds for the client to read what was said before its goodbye."""


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
            await _serve(me, service, source, sink)

    await serve(root, body)


async def _serve(me: Actor, service: Service, source: int, sink: int) -> None:
    session = Session(service)
    async with trio.lowlevel.FdStream(source) as reading, trio.lowlevel.FdStream(sink) as writing:
        outbox = Outbox(writing)
        with trio.CancelScope() as scope:
            me.spawn(outbox.empty, scope, name="writer")
            async for line in lines(reading):
                if line is None:
                    outbox.put(encode_failure(None, PARSE_ERROR, f"a message has at most {MAX_LINE} bytes"))
                elif line.strip():
                    _read(me, session, outbox, line)
                await outbox.room()
            session.close()
            with trio.move_on_after(FLUSH_WITHIN):
                await outbox.emptied()


def _read(me: Actor, session: Session, outbox: Outbox, line: bytes) -> None:
    """Do what a line says."""
    try:
        messages = decode_all(line)
    except (ValueError, RecursionError) as error:
        outbox.put(encode_failure(None, PARSE_ERROR, f"this line is no JSON-RPC message: {error}"))
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
                outbox.put(answer)
        elif isinstance(message, Notification):
            session.notified(message)
        else:
            session.answered(message)


async def _play(_: Actor, session: Session, leg: Leg, outbox: Outbox) -> None:
    answer = await session.play(leg, outbox.put)
    if answer is not None:
        outbox.put(answer)


class Outbox:
    """What the client is yet to read."""

    def __init__(self, stream: trio.abc.SendStream) -> None:
        self._stream = stream
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._changed = trio.lowlevel.ParkingLot()

    def put(self, message: bytes, *, droppable: bool = False) -> None:
        if droppable and self._bytes >= BEHIND:
            return
        self._waiting.append(message)
        self._bytes += len(message)
        self._changed.unpark_all()

    async def empty(self, _: Actor, scope: trio.CancelScope) -> None:
        """Body of the writer; `scope` is cancelled when nobody reads any more."""
        try:
            while True:
                while not self._waiting:
                    await self._changed.park()
                batch, self._waiting = self._waiting, []
                await self._stream.send_all(b"".join(message + b"\n" for message in batch))
                self._bytes = sum(map(len, self._waiting))
                self._changed.unpark_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            scope.cancel()

    async def room(self) -> None:
        """Wait until the client has caught up."""
        await trio.lowlevel.checkpoint()
        while self._bytes >= BEHIND:
            await self._changed.park()

    async def emptied(self) -> None:
        """Wait until everything is said."""
        while self._bytes:
            await self._changed.park()


async def lines(stream: trio.abc.ReceiveStream) -> AsyncIterator[bytes | None]:
    """The lines of a stream, without a last one that has no end; None for one that is too long."""
    buffer = bytearray()
    skipping = False
    while data := await stream.receive_some(CHUNK):
        if b"\n" not in data:
            buffer += b"" if skipping else data
        else:
            first, *others = (bytes(buffer) + data).split(b"\n")
            *others, last = others
            yield None if skipping or len(first) > MAX_LINE else first
            for line in others:
                yield line
            buffer, skipping = bytearray(last), False
        if len(buffer) > MAX_LINE:
            buffer, skipping = bytearray(), True


@contextmanager
def private_stdio() -> Iterator[tuple[int, int]]:
    """Copies of stdin and stdout that nobody else knows, while the real ones lead nowhere and to stderr."""
    kept = os.dup(0), os.dup(1)
    mine = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield mine
    finally:
        for number, copy in enumerate(kept):
            os.dup2(copy, number)
            os.close(copy)
