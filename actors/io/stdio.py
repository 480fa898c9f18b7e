"""Exchanges messages, one per line, with the client that has started this process, over stdin and stdout.

No other output may get in between. So while we serve, descriptor 1 is stderr and descriptor 0 is empty, for all of this
process and for what it starts; the protocol has private copies of the real ones. At the end of the input what waits in
the outbox is still sent.

The client may read slowly. Messages to it wait in the outbox; beyond `BEHIND` bytes we read no more from it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import trio

from ...protocol.jsonrpc import PARSE_ERROR, encode_failure
from ...supervisors import Actor
from .outbox import Gone, Outbox

MAX_LINE = 16 * 1024 * 1024
"""Bytes of one message at most; a longer one is refused unread."""

BEHIND = 1024 * 1024
CHUNK = 65_536
FLUSH_WITHIN = 1.0
"""Seconds for the client to read what was said before its goodbye."""


@asynccontextmanager
async def over_pipes(me: Actor, source: int, sink: int) -> AsyncIterator[tuple[AsyncIterator[bytes], Outbox]]:
    """The messages that come, and the way back, over two descriptors, which are closed at the end.

    The block is left when the client reads no more. At its end, what was said is still written.
    """
    async with trio.lowlevel.FdStream(source) as reading, trio.lowlevel.FdStream(sink) as writing:
        outbox = Outbox(writing.send_all, end=b"\n", most=BEHIND)
        with trio.CancelScope() as scope:
            me.spawn(_write, outbox, scope, name="writer")
            with suppress(Gone):
                yield _messages(reading, outbox), outbox
            with trio.move_on_after(FLUSH_WITHIN):
                await outbox.emptied()


async def _write(_: Actor, outbox: Outbox, scope: trio.CancelScope) -> None:
    await outbox.write()
    scope.cancel()


async def _messages(stream: trio.abc.ReceiveStream, outbox: Outbox) -> AsyncIterator[bytes]:
    try:
        async for line in lines(stream):
            if line is None:
                text = f"a message has at most {MAX_LINE} bytes"
                outbox.put_nowait(encode_failure(None, PARSE_ERROR, text))
            elif line.strip():
                yield line
            await trio.lowlevel.checkpoint()
            await outbox.room()
    except Gone:
        return


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
    """Copies of stdin and stdout that nothing else knows, while the real ones lead nowhere and to stderr."""
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
