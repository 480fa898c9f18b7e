"""Listens on the one port, and picks the protocol of each connection.

The first bytes of a connection decide. A request to upgrade to a websocket goes to the control channel, everything
else to HTTP, each with the bytes that have been read already. So a websocket needs a connection of its own, as every
browser and library opens one; a proxy that keeps connections open must be told to, if it does not by itself. A request
to upgrade that comes later, on a connection that has spoken HTTP, is refused with a word (`speaking`): taking a
connection back from the HTTP server, which may hold bytes of it, is not worth what could go wrong.

The listener owns its connections: the server's end cuts them off, whatever their tasks shield.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable

import trio

from ....protocol.errors import UsageError
from ..access.limits import ConnectionLimiter

log = logging.getLogger("callboard.server")

BACKLOG = 1024
HEAD_WITHIN = 10.0
"""Seconds in which the head of a request has to arrive: of the first since the connection, of others since their first
byte (see `speaking`)."""

LONGEST_HEAD = 65_536
EMPTY_LINE = b"\r\n\r\n"

GOODBYE_WITHIN = 0.5
"""Seconds for websockets to be closed in when the server ends."""

LOOK_EVERY = 0.01

PIECE = 65_536
TAKES_WITHIN = 60.0
"""Seconds in which a client takes a piece of a reply."""

Speaks = Callable[["Opened"], Awaitable[None]]


def listen(host: str, port: int) -> trio.SocketListener:
    """A socket that takes connections; port 0 for a free one.

    Raises:
        UsageError: the address can't be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        number = error.errno if isinstance(error, OSError) else None
        why = os.strerror(number) if number and number in errno.errorcode else str(error)
        other = "; --port takes another one" if number == errno.EADDRINUSE else ""
        raise UsageError(f"can't listen on {host}:{port}: {why}{other}") from None
    sock.setblocking(False)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


class Opened(trio.abc.HalfCloseableStream):
    """A connection whose first bytes have been looked at and are read once more.

    Attributes:
        stream, socket: what is below.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self.socket = stream.socket
        self.stream = stream
        self._head = b""
        self._behind = b""
        self._answered: trio.Event | None = None

    def hold_back(self) -> None:
        """Give out the request's head, and what comes behind it only when something was answered.

        A client should not send frames before it is let in; of one that does trio-websocket would lose them, and both
        would wait for each other for ever.
        """
        head, line, self._behind = self._head.partition(EMPTY_LINE)
        self._head = head + line
        self._answered = trio.Event()

    @property
    def peer(self) -> str:
        """The address at the other end; empty if that has gone."""
        try:
            return str(self.socket.getpeername()[0])
        except OSError:
            return ""

    async def look(self) -> bytes:
        """The head of the first request: what was sent up to the first empty line; nothing if that takes too long."""
        with trio.move_on_after(HEAD_WITHIN) as waiting:
            while EMPTY_LINE not in self._head and len(self._head) < LONGEST_HEAD and _may_be_http(self._head):
                more = await self.stream.receive_some(LONGEST_HEAD)
                if not more:
                    break
                self._head += more
        return b"" if waiting.cancelled_caught else self._head.partition(EMPTY_LINE)[0]

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if not self._head and self._answered is not None:
            await self._answered.wait()
            self._answered, self._head, self._behind = None, self._behind, b""
        if not self._head:
            return bytes(await self.stream.receive_some(max_bytes))
        await trio.lowlevel.checkpoint()
        count = len(self._head) if max_bytes is None else max_bytes
        taken, self._head = self._head[:count], self._head[count:]
        return taken

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """A client that takes nothing for a while is gone, whatever the sender shields."""
        if self._answered is not None:
            self._answered.set()
        for begin in range(0, len(data), PIECE):
            with trio.move_on_after(TAKES_WITHIN) as waiting:
                try:
                    await self.stream.send_all(data[begin : begin + PIECE])
                except trio.BusyResourceError:  # by `send_eof`: senders take turns, and only who closes does not wait
                    raise trio.BrokenResourceError("the connection is being closed") from None
            if waiting.cancelled_caught:
                self.socket.close()
                raise trio.BrokenResourceError("the client has stopped reading")

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def aclose(self) -> None:
        await self.stream.aclose()


async def serve_port(
    listener: trio.SocketListener, limiter: ConnectionLimiter, *, http: Speaks, websocket: Speaks | None = None
) -> None:
    """Take connections until cancelled; then cut those that are open, websockets after a word of farewell.

    Args:
        websocket: what speaks with those that begin with a request to upgrade; by default `http`.
    """
    open: set[trio.SocketStream] = set()
    talking: set[trio.SocketStream] = set()

    async def talk(opened: Opened) -> None:
        talking.add(opened.stream)
        opened.hold_back()
        try:
            assert websocket is not None
            await websocket(opened)
        finally:
            talking.discard(opened.stream)

    async def connected(stream: trio.SocketStream) -> None:
        task = trio.lowlevel.current_task()
        open.add(stream)
        try:
            opened = Opened(stream)
            with limiter.entering(opened.peer) as room:
                if room and (head := await opened.look()):
                    await (talk if websocket is not None and upgrades(head) else http)(opened)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass  # it went away
        except* Exception as crashes:  # noqa: BLE001 - some bytes crash hypercorn (an HTTP/2 CONNECT), before any token
            if _runs(task):
                log.warning("a connection was dropped: %r", crashes.exceptions)
        finally:
            open.discard(stream)
            stream.socket.close()

    async def cut() -> None:
        try:
            await trio.sleep_forever()
        finally:
            for stream in open - talking:
                stream.socket.close()
            with trio.move_on_after(GOODBYE_WITHIN, shield=True):
                while talking:  # noqa: ASYNC110 - each goes in its own way
                    await trio.sleep(LOOK_EVERY)
            for stream in open:
                stream.socket.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        await trio.serve_listeners(connected, [listener], handler_nursery=nursery)


def _runs(task: trio.lowlevel.Task) -> bool:
    """Whether it is this task that runs.

    It is not where trio's whole run was abandoned, as by an error in the event loop: then Python's collector closes
    what is left of each task, whose cancel scopes complain that there is no trio.
    """
    return trio.lowlevel.in_trio_task() and trio.lowlevel.current_task() is task


def _may_be_http(start: bytes) -> bool:
    """Whether a request may begin like this; TLS on this port, for one, is refused at once."""
    return not start or start[:1].isalpha()


def upgrades(head: bytes) -> bool:
    """Whether a request's head asks for a websocket."""
    request, *headers = head.split(b"\r\n")
    if not request.startswith(b"GET "):
        return False
    named = (header.partition(b":") for header in headers)
    return any(name.strip().lower() == b"upgrade" and value.strip().lower() == b"websocket" for name, _, value in named)
