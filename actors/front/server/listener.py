"""Listen on the server's port, select the protocol of each connection, and serve HTTP on it.

The first bytes of a connection decide. A request to upgrade to a websocket goes to the control channel, any other to
HTTP; both receive the bytes that were already read. So a websocket needs a new connection, which every browser and
library opens. A proxy that reuses connections may have to be configured for that. An upgrade request that comes later,
on an HTTP connection, is refused with a message (`without_websockets`). The HTTP server may hold bytes of that
connection, so taking it back would not be safe.

hypercorn's protocols serve HTTP on one connection (`speaker_of`); without hypercorn there is a short reply. Only the
part of hypercorn that handles one connection is used. hypercorn shields its sends, so a client that does not read could
delay the end of the server without limit. So the listener owns the connections: when the server ends, it cuts them,
even if their tasks are shielded.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import trio

from ....protocol.errors import UsageError
from ..access.limits import ConnectionLimiter

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


log = logging.getLogger("callboard.server")

BACKLOG = 1024
HEAD_WITHIN = 10.0
"""Seconds in which the head of a request has to arrive.

The first head counts from the connection, a later one from its first byte (see `speaker_of`).
"""

LONGEST_HEAD = 65_536
EMPTY_LINE = b"\r\n\r\n"

GOODBYE_WITHIN = 0.5
"""Seconds for closing websockets when the server ends."""

LOOK_EVERY = 0.01

PIECE = 65_536
TAKES_WITHIN = 60.0
"""Seconds in which a client must accept a piece of a reply."""

Speaks = Callable[["InspectedStream"], Awaitable[None]]


def listen(host: str, port: int) -> trio.SocketListener:
    """Return a listening socket; port 0 for a free one.

    Raises:
        UsageError: the address can't be bound.
    """
    sock = bind(host, port)
    begin_listening(sock, host)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket that refuses connections until `begin_listening`.

    Raises:
        UsageError: the address can't be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A server that restarts must not wait for old connections in TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # By default, Linux would accept IPv4 on `::` as well, and take the port from an IPv4 listener.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise _not_had(host, port, error) from None
    sock.setblocking(False)
    return sock


def begin_listening(sock: socket.socket, host: str) -> None:
    """Accept connections from now on.

    Raises:
        UsageError: another process, which had bound the same port too, listens already.
    """
    try:
        sock.listen(BACKLOG)
    except OSError as error:
        port = sock.getsockname()[1]
        sock.close()
        raise _not_had(host, port, error) from None


def _not_had(host: str, port: int, error: OSError | OverflowError) -> UsageError:
    number = error.errno if isinstance(error, OSError) else None
    why = os.strerror(number) if number and number in errno.errorcode else str(error)
    other = "; choose another port with --port" if number == errno.EADDRINUSE else ""
    return UsageError(f"can't listen on {host}:{port}: {why}{other}")


class InspectedStream(trio.abc.HalfCloseableStream):
    """A connection whose first bytes were inspected and will be read again.

    Attributes:
        stream, socket: the underlying connection.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self.socket = stream.socket
        self.stream = stream
        self._head = b""
        self._behind = b""
        self._answered: trio.Event | None = None

    def hold_back(self) -> None:
        """Release only the request's head to the reader; hold the bytes behind it until an answer is sent.

        A client should not send frames before it is admitted. trio-websocket would lose such frames, and both sides
        would wait for each other for ever.
        """
        head, line, self._behind = self._head.partition(EMPTY_LINE)
        self._head = head + line
        self._answered = trio.Event()

    @property
    def peer(self) -> str:
        """The remote address; empty if the peer has disconnected."""
        try:
            return str(self.socket.getpeername()[0])
        except OSError:
            return ""

    async def peek(self) -> bytes:
        """Return the first request's head, up to the first empty line; empty after `HEAD_WITHIN` seconds."""
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
            # The answer was sent: release the bytes that were held behind the head.
            self._answered, self._head, self._behind = None, self._behind, b""
        if not self._head:
            return bytes(await self.stream.receive_some(max_bytes))
        await trio.lowlevel.checkpoint()
        count = len(self._head) if max_bytes is None else max_bytes
        taken, self._head = self._head[:count], self._head[count:]
        return taken

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send in pieces; close the connection if the client accepts none for `TAKES_WITHIN` seconds.

        The limit holds in shielded tasks too: hypercorn shields its sends.
        """
        if self._answered is not None:
            self._answered.set()
        for begin in range(0, len(data), PIECE):
            with trio.move_on_after(TAKES_WITHIN) as waiting:
                try:
                    await self.stream.send_all(data[begin : begin + PIECE])
                except trio.BusyResourceError:  # from `send_eof`: senders take turns, and only closing does not wait
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
    """Accept connections until cancelled; then cut the open ones, websockets after a close frame.

    Args:
        websocket: handles connections that begin with an upgrade request; by default `http`.
    """
    open: set[trio.SocketStream] = set()
    talking: set[trio.SocketStream] = set()

    async def talk(opened: InspectedStream) -> None:
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
            opened = InspectedStream(stream)
            with limiter.entering(opened.peer) as room:
                if room and (head := await opened.peek()):
                    await (talk if websocket is not None and upgrades(head) else http)(opened)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass  # the client has disconnected
        except* Exception as crashes:  # noqa: BLE001 - some bytes crash hypercorn (an HTTP/2 CONNECT), before any token
            if _runs(task):
                log.warning("a connection was dropped: %r", crashes.exceptions)
        finally:
            open.discard(stream)
            stream.socket.close()

    async def cut() -> None:
        try:
            # HTTP connections are cut at once. hypercorn shields its sends, so cancelling their tasks would not end
            # them.
            await trio.sleep_forever()
        finally:
            for stream in open - talking:
                stream.socket.close()
            with trio.move_on_after(GOODBYE_WITHIN, shield=True):
                while talking:  # noqa: ASYNC110 - each websocket closes in its own time
                    await trio.sleep(LOOK_EVERY)
            for stream in open:
                stream.socket.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        await trio.serve_listeners(connected, [listener], handler_nursery=nursery)


def _runs(task: trio.lowlevel.Task) -> bool:
    """Return whether `task` is the running task.

    It is not if trio's run was abandoned, for example by an error in the event loop. Then Python's garbage collector
    closes the remaining tasks, and their cancel scopes fail because trio no longer runs.
    """
    return trio.lowlevel.in_trio_task() and trio.lowlevel.current_task() is task


def _may_be_http(start: bytes) -> bool:
    """Return whether a request may begin like this, so that TLS on this port is refused at once."""
    return not start or start[:1].isalpha()


def upgrades(head: bytes) -> bool:
    """Return whether a request's head asks for a websocket."""
    request, *headers = head.split(b"\r\n")
    if not request.startswith(b"GET "):
        return False
    named = (header.partition(b":") for header in headers)
    return any(name.strip().lower() == b"upgrade" and value.strip().lower() == b"websocket" for name, _, value in named)


http_log = logging.getLogger("callboard.http")

KEEP_ALIVE = 60.0
"""Seconds that a connection may be idle.

Clients use shorter limits, so they close it first.
"""

MISSING = "callboard: HTTP is not served, only the websocket at /ws, because the extra `server` is not installed\n"
TOO_LATE = (
    b'{"error": {"code": "usage", "message": "a websocket needs a connection of its own: '
    b'the request to upgrade has to be the first that is made on it"}}'
)


def speaker_of(app: ASGIApp) -> Callable[[InspectedStream], Awaitable[None]]:
    """Return the handler for HTTP connections, which passes their requests to the application."""
    import h11
    from hypercorn.app_wrappers import ASGIWrapper
    from hypercorn.config import Config
    from hypercorn.events import Closed, Event, RawData, Updated
    from hypercorn.protocol.h11 import H11Protocol
    from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import ConnectionState

    class Connection(TCPServer):
        """A connection that ends when its client disconnects, or when a request's head takes too long.

        hypercorn alone would wait for the long idle timeout in both cases.
        """

        over = False

        async def _read_data(self) -> None:
            head = trio.CancelScope()  # the deadline belongs to a head that has begun
            while True:
                data = b""
                with contextlib.suppress(trio.ClosedResourceError, trio.BrokenResourceError), head:
                    data = bytes(await self.stream.receive_some(MAX_RECV))
                if not data:  # the client has disconnected, or was too slow
                    break
                await self.protocol.handle(RawData(data))
                head = trio.CancelScope(deadline=self._deadline(head.deadline))
            await self.protocol.handle(Closed())
            self.over = True
            await self.idle_task.stop()

        def _deadline(self, before: float) -> float:
            """Return the time at which the begun head has to be complete; infinite if no head has begun."""
            speaking = self.protocol.protocol
            if isinstance(speaking, H11Protocol):
                idle = speaking.connection.their_state is h11.IDLE
                begun = bool(speaking.connection.trailing_data[0])
            else:
                idle, held = speaking.idle, speaking.connection.incoming_buffer
                begun = bool(held._data or held._headers_buffer)  # noqa: SLF001 - no public view of half a frame
            return min(before, trio.current_time() + HEAD_WITHIN) if idle and begun else math.inf

        async def protocol_send(self, event: Event) -> None:
            if not (self.over and isinstance(event, Updated)):
                await super().protocol_send(event)

    config = Config()
    config.errorlog = http_log
    config.keep_alive_timeout = KEEP_ALIVE
    config.include_server_header = False
    context = WorkerContext(None)
    wrapped = ASGIWrapper(cast("Any", without_websockets(app)))
    speaks: Any = Connection  # its annotations assume TLS

    async def speak(connection: InspectedStream) -> None:
        await speaks(wrapped, config, context, ConnectionState({}), connection)

    return speak


def without_websockets(app: ASGIApp) -> ASGIApp:
    """Wrap an application; refuse a websocket upgrade on a connection that has already carried HTTP."""

    async def spoken(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await app(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(TOO_LATE)).encode())]
        await receive()
        await send({"type": "websocket.http.response.start", "status": 400, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": TOO_LATE})

    return spoken


async def say_missing(connection: InspectedStream) -> None:
    """Answer every HTTP request with 501, because the extra `server` is not installed."""
    body = MISSING.encode()
    head = "HTTP/1.1 501 Not Implemented\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    await connection.send_all(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await connection.send_eof()
