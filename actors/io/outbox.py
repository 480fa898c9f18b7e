"""What is on its way to one client: frames gather in a bounded buffer, and one task writes them, many at a time.

Whoever sends is cancelled now and then (a subscription that is ended, a request that is taken back). Had it to write
to the socket itself, half a frame could be left there, and the client would read nonsense from then on. So senders only
put whole frames in here, and wait while it is full; the writer alone touches the socket, and ends with the connection.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import trio
from wsproto.connection import ConnectionState

from .unread import Unread

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection

ROOM = 64 * 1024
"""Bytes that may wait; a single frame may be larger."""

_TEXT = 0x81
"""A text frame that is whole; what a server sends is not masked."""


class Gone(Exception):
    """The other side is not there any more."""


class Outbox:
    """See the module.

    Args:
        websocket: to whom; its own frames (pings, closing words) take turns with ours.
        unread: what waits for all connections of the same key.
    """

    def __init__(self, websocket: WebSocketConnection, unread: Unread | None = None) -> None:
        self._websocket = websocket
        self._unread = unread or Unread()
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._torn = False
        self._gone = False
        self._news = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    async def room(self) -> None:
        """Wait until a frame could be put in at once: before it is made, so that who waits holds nothing.

        Raises:
            Gone: the client is not there any more.
        """
        while True:
            while self._bytes >= ROOM and not self._gone:
                await self._room.park()
            if self._gone:
                raise Gone
            await self._unread.room()
            if self._bytes < ROOM and not self._gone:
                return

    async def put(self, frame: bytes) -> None:
        """Send a frame. A checkpoint only if there is no room.

        Raises:
            Gone: the client is not there any more.
        """
        size = len(frame)
        self._unread.add(size)
        try:
            while self._bytes >= ROOM and not self._gone:
                await self._room.park()
            if self._gone:
                raise Gone
        except BaseException:  # cancelled too: what was counted for it is given back
            self._unread.taken(size)
            raise
        self._waiting.append(_head(size))
        self._waiting.append(frame)
        self._bytes += size
        if self._news:
            self._news.unpark_all()

    async def write(self) -> None:
        """Write what is put in, until the connection breaks or this is cancelled."""
        try:
            while True:
                while not self._waiting:
                    await self._news.park()
                if not await self._write_all():
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            self._gone = True
            self._room.unpark_all()

    def close(self) -> None:
        """The connection has ended: what was not sent never will be."""
        self._waiting.clear()
        self._unread.taken(self._bytes)
        self._bytes = 0

    async def finish(self) -> None:
        """After the writer has ended: write what is left, unless half a frame is out already."""
        if self._waiting and not self._torn:
            await self._write_all()

    async def between(self) -> None:
        """Wait until no frame is half out; if the writer was interrupted in one, that is told by `torn`."""
        async with self._websocket._stream_lock:  # noqa: SLF001 - see `_write_all`
            pass

    @property
    def torn(self) -> bool:
        """Whether the writer was interrupted in the middle of a frame: nothing that follows could be read."""
        return self._torn

    async def _write_all(self) -> bool:
        """False if the connection takes no more frames."""
        websocket = self._websocket
        async with websocket._stream_lock:  # noqa: SLF001 - wsproto takes one text at a time, at a tenth of the speed
            if websocket._wsproto.state is not ConnectionState.OPEN:  # noqa: SLF001 - as above
                return False
            waiting, self._waiting = self._waiting, []
            size, self._torn = self._bytes, True
            together = b"".join(waiting)
            waiting.clear()  # else all of it would be there twice while the client reads
            await websocket._stream.send_all(together)  # noqa: SLF001 - as above
            self._torn = False
        self._bytes -= size
        self._unread.taken(size)
        self._room.unpark_all()
        return True


def _head(size: int) -> bytes:
    if size < 126:
        return bytes((_TEXT, size))
    if size < 65536:
        return struct.pack("!BBH", _TEXT, 126, size)
    return struct.pack("!BBQ", _TEXT, 127, size)
