"""Output queue to one client: frames gather in a bounded buffer, and one task writes many of them at a time.

Senders get cancelled (a subscription ends, a request is withdrawn). If they wrote to the socket themselves, a cancelled
sender could leave half a frame there, and the client could not parse the rest. So senders only append whole frames
here, and wait while the buffer is full. Only the writer touches the stream, and it ends with the connection.

A connection buffers little, but a key may have many connections, and may request a large answer on each. So the waiting
bytes of a key are counted over all its connections (`Unread`), and its next request waits while there are too many.
Requests with a possibly long answer that is produced in steps also take turns: each of them holds the part that it has
produced.

    with unread.of(caller.subject) as mine:
        await mine.room()
        mine.add(len(frame))    # and `mine.taken` when the client has it

`over_pipes` connects an outbox to a parent process over stdin and stdout, with one frame per line. No other output may
get in between. So while serving, descriptor 1 is stderr and descriptor 0 is empty, for this process and its children;
the protocol has private copies of the real ones. Beyond `BEHIND` unread bytes no more input is read. At the end of the
input the outbox is still flushed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import final

import trio

from ...protocol.jsonrpc import PARSE_ERROR, encode_failure
from ...supervisors import Actor

ROOM = 64 * 1024
"""Bytes that may wait; a single frame may be larger."""

MOST_BYTES = 4 * 1024 * 1024
"""Bytes that may wait for one key; a frame begun below the limit may exceed it."""

TURNS = 4
"""Long answers of one key that may be produced or sent at a time."""


class PeerClosed(Exception):
    """The client has disconnected."""


class Outbox:
    """Output buffer of one connection.

    Args:
        send: writes bytes to the stream; raises trio's errors of broken streams.
        head, end: bytes before and after a frame on the wire, `head` by its size; neither counts as waiting.
        most: bytes that may wait.
        unread: waiting bytes of all connections of the same key.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        *,
        head: Callable[[int], bytes] | None = None,
        end: bytes = b"",
        most: int = ROOM,
        unread: Unread | None = None,
    ) -> None:
        self._send = send
        self._head = head
        self._end = end
        self._most = most
        self._unread = unread or Unread()
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._gone = False
        self._news = trio.lowlevel.ParkingLot()
        self._less = trio.lowlevel.ParkingLot()

    async def room(self) -> None:
        """Wait until a frame could be added at once.

        Call it before producing the frame, so that a waiting task holds nothing.

        Raises:
            PeerClosed: the client has disconnected.
        """
        while True:
            while self._bytes >= self._most and not self._gone:
                await self._less.park()
            if self._gone:
                raise PeerClosed
            # Waiting for the other connections of the client may take a while, in which this buffer can fill: hence the
            # loop.
            await self._unread.room()
            if self._bytes < self._most and not self._gone:
                return

    async def put(self, frame: bytes) -> None:
        """Add a frame. A checkpoint only if the buffer is full.

        Raises:
            PeerClosed: the client has disconnected.
        """
        size = len(frame)
        self._unread.add(size)
        try:
            while self._bytes >= self._most and not self._gone:
                await self._less.park()
            if self._gone:
                raise PeerClosed
        except BaseException:  # cancelled too: undo the count
            self._unread.taken(size)
            raise
        self._add(frame)

    def put_nowait(self, frame: bytes, *, droppable: bool = False) -> None:
        """Add a frame even if the buffer is full, unless it is `droppable`. Ignored after a disconnect."""
        if not self._gone and not (droppable and self._bytes >= self._most):
            self._unread.add(len(frame))
            self._add(frame)

    def _add(self, frame: bytes) -> None:
        if self._head is not None:
            self._waiting.append(self._head(len(frame)))
        self._waiting.append(frame)
        if self._end:
            self._waiting.append(self._end)
        self._bytes += len(frame)
        if self._news:
            self._news.unpark_all()

    async def write(self) -> None:
        """Write frames until the connection breaks or the task is cancelled."""
        try:
            while True:
                while not self._waiting:
                    await self._news.park()
                if not await self.write_all():
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        # Tasks that wait for room must learn of the end; no writer will ever make room again.
        finally:
            self._gone = True
            self._less.unpark_all()

    async def write_all(self) -> bool:
        """Write the frames that wait now, in one piece, and return True.

        A subclass returns False without writing if the connection accepts no more frames.

        Raises:
            trio.BrokenResourceError, trio.ClosedResourceError: the connection is broken or closed.
        """
        size = self._bytes
        waiting, self._waiting = self._waiting, []
        together = b"".join(waiting)
        waiting.clear()  # otherwise all of it would exist twice while the client reads
        await self._send(together)
        self._bytes -= size
        self._unread.taken(size)
        self._less.unpark_all()
        return True

    async def emptied(self) -> None:
        """Wait until everything is written, or the connection accepts no more."""
        while self._bytes and not self._gone:
            await self._less.park()

    def close(self) -> None:
        """Drop unsent frames after the connection has ended."""
        self._waiting.clear()
        self._unread.taken(self._bytes)
        self._bytes = 0


@final
class Unread:
    """Waiting bytes of all connections of one key.

    Attributes:
        bytes: number of waiting bytes.
        turn: context manager for producing and sending a long answer.
        connections: number of connections.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.turn = trio.Semaphore(TURNS)
        self.connections = 0
        self._less = trio.lowlevel.ParkingLot()

    async def room(self) -> None:
        """Wait until more may be produced for this key. A checkpoint only if it has to wait."""
        while self.bytes >= MOST_BYTES:
            await self._less.park()

    def add(self, size: int) -> None:
        """Count queued bytes."""
        self.bytes += size

    def taken(self, size: int) -> None:
        """Subtract bytes that the client has received, or that were dropped."""
        self.bytes -= size
        if self.bytes < MOST_BYTES:
            self._less.unpark_all()


@final
class UnreadOfAll:
    """Counts of unread output bytes, one per API key."""

    def __init__(self) -> None:
        self._of: dict[str, Unread] = {}

    @contextmanager
    def of(self, subject: str) -> Iterator[Unread]:
        """Yield the unread bytes that all connections of an API key share, for the lifetime of one connection."""
        mine = self._of.setdefault(subject, Unread())
        mine.connections += 1
        try:
            yield mine
        finally:
            mine.connections -= 1
            if not mine.connections:
                del self._of[subject]


# --- stdin and stdout


MAX_LINE = 16 * 1024 * 1024
"""Maximum bytes of one message; a longer one is refused unread."""

BEHIND = 1024 * 1024
"""Unread bytes of the client beyond which no more input is read."""

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
                text = f"a message may have at most {MAX_LINE} bytes"
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
