"""Line-based messages with the parent process, over stdin and stdout.

No other output may get in between. So while serving, descriptor 1 is stderr and descriptor 0 is empty, for this process
and its children; the protocol has private copies of the real ones. At the end of the input the outbox is still flushed.

The client may read slowly. Messages to it wait in the outbox; beyond `BEHIND` bytes no more input is read.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import trio

from ...protocol.jsonrpc import PARSE_ERROR, encode_failure
from ...supervisors import Actor
from .outbox import Outbox, PeerClosed

MAX_LINE = 16 * 1024 * 1024
"""Maximum bytes of one message; a longer one is refused unread."""

BEHIND = 1024 * 1024
CHUNK = 65_536
FLUSH_WITHIN = 1.0
"""Seconds for the client to read the last messages."""


@asynccontextmanager
async def over_pipes(me: Actor, source: int, sink: int) -> AsyncIterator[tuple[AsyncIterator[bytes], Outbox]]:
    """Yield incoming messages and the outbox, over two descriptors, which are closed at the end.

    The block is cancelled when the client stops reading. At its end, queued messages are still written.
    """
    async with trio.lowlevel.FdStream(source) as reading, trio.lowlevel.FdStream(sink) as writing:
        outbox = Outbox(writing.send_all, end=b"\n", most=BEHIND)
        with trio.CancelScope() as scope:
            me.spawn(_write, outbox, scope, name="writer")
            with suppress(PeerClosed):
                yield _messages(reading, outbox), outbox
            with trio.move_on_after(FLUSH_WITHIN):
                await outbox.emptied()


async def _write(_: Actor, outbox: Outbox, scope: trio.CancelScope) -> None:
    await outbox.write()
    # `write` returns only when the client has stopped reading, and then nothing can be answered any more.
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
            # No further request is read while the client leaves answers unread, so the outbox stays bounded.
            await outbox.room()
    except PeerClosed:
        return


async def lines(stream: trio.abc.ReceiveStream) -> AsyncIterator[bytes | None]:
    """Yield the lines of a stream, without an incomplete last one; None for one that is too long."""
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
        # The rest of an overlong line is dropped as it arrives, so it takes no more memory than this.
        if len(buffer) > MAX_LINE:
            buffer, skipping = bytearray(), True


@contextmanager
def private_stdio() -> Iterator[tuple[int, int]]:
    """Yield private copies of stdin and stdout, while the real ones are /dev/null and stderr."""
    kept = os.dup(0), os.dup(1)
    mine = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    # A `print` anywhere in the process would break the protocol on stdout, so it goes to stderr.
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield mine
    finally:
        for number, copy in enumerate(kept):
            os.dup2(copy, number)
            os.close(copy)
