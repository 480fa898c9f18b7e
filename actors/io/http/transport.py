"""HTTP for a thousand agents at once: an `httpx.AsyncBaseTransport` on trio, and single requests over it.

httpx's own pool examines every connection for every request, so a thousand concurrent requests cost several times as
much as sequential ones. This pool searches nothing, opens one cancel scope per request, and has no background task:

    client = httpx.AsyncClient(transport=TrioTransport())

A connection carries one request at a time, in the task of its caller, and is reused only after its response was read
completely. In every other case (cancellation, timeout, an error, a reader that stops early) it is closed at once. The
provider can then stop generating the response.

Idle connections are in two orders: by origin, the freshest at the end, which the next request takes; and by age over
all origins, from whose beginning expired ones are dropped whenever a connection is returned. So nothing is searched and
no timer is needed. A connection closed by age remains in its origin's row. It is skipped when it is popped, which
happens only after all younger ones.

A server may close an idle connection just when it is reused. If not a byte of a response has arrived, the request is
sent again on a new connection. The extension `once` forbids that, for work that must not be done twice. Request bodies
are bytes, not streams.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import math
import os
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, Self, TypeAlias

import httpx
import msgspec
import trio

from ....protocol.errors import CredentialsError, UpstreamError
from ..secret_redaction import hidden_head
from .http1 import ResponseReader, request_head
from .proxies import Proxies, as_address, proxy_headers

KEEP_ALIVE = 30.0
"""Seconds for which an idle connection is retained: longer than an agent's step, shorter than most servers' limits."""

MAX_IDLE = 2000
"""Maximum number of idle connections; beyond it the oldest is closed."""

Timeouts = Mapping[str, float | None]


class TrioTransport(httpx.AsyncBaseTransport):
    """Transport for any `httpx.AsyncClient` under trio.

    Args:
        environ: environment for `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`; empty by default.
        proxy: a proxy for everything, `-` for none, empty to use `environ`.
        ssl_context: verification of servers; by default with the authorities of certifi or `SSL_CERT_FILE`.
        keep_alive: seconds for which an idle connection is retained.
        max_idle: maximum number of idle connections.

    The timeouts are httpx's: `connect`, `write`, `read` (until the next bytes). `pool` is ignored: there are always as
    many connections as requests.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        proxy: str = "",
        ssl_context: ssl.SSLContext | None = None,
        keep_alive: float = KEEP_ALIVE,
        max_idle: int = MAX_IDLE,
    ) -> None:
        self.connections = Connections(environ or {}, proxy, ssl_context, keep_alive=keep_alive, max_idle=max_idle)

    async def aclose(self) -> None:
        """Close every connection; pending reads raise `httpx.ReadError`. Never waits."""
        self.connections.close()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and wait for status and headers; the body is read through the response.

        Raises:
            httpx.TransportError: of the kinds that httpx's own transport raises.
        """
        timeouts: Timeouts = request.extensions.get("timeout", {})
        once = bool(request.extensions.get("once"))
        return await self.send(request.method, request.url, request.headers.raw, request.read(), timeouts, once=once)

    async def send(
        self,
        method: str,
        url: httpx.URL,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        timeouts: Timeouts,
        *,
        once: bool = False,
    ) -> httpx.Response:
        """Send a request as `handle_async_request` does, without an `httpx.Request`, which costs as much as sending it.

        Args:
            once: never send the request again on another connection if this one turns out to be closed.
        """
        return (await self.exchange(method, url, headers, body, timeouts, once=once)).response()

    def exchange(
        self,
        method: str,
        url: httpx.URL,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        timeouts: Timeouts,
        *,
        once: bool = False,
    ) -> Coroutine[Any, Any, Exchange]:
        """Send a request as `send` does, without an `httpx.Response`, whose headers take 20 calls.

        The caller closes the result.
        """
        route = self.connections.route(url)
        head = _encoded(method, url, headers, route)
        return self._exchange(route, head, body, timeouts, bodiless=method == "HEAD", once=once)

    async def _exchange(
        self, route: ConnectionRoute, head: bytes, body: bytes, timeouts: Timeouts, *, bodiless: bool, once: bool
    ) -> Exchange:
        connection = await self.connections.acquire(route, timeouts)
        try:
            return await Exchange(self.connections, connection, timeouts).start(head, body, bodiless=bodiless)
        # A server may close an idle connection at any moment, also between the check and the request. The connection
        # has not returned a byte, so the request is sent again, on a connection that is certainly new: every idle one
        # may be stale.
        except _Stale as stale:
            if once:
                raise httpx.ReadError(f"the connection broke before the response: {stale}") from stale
        connection = await self.connections.acquire(route, timeouts, fresh=True)
        return await Exchange(self.connections, connection, timeouts).start(head, body, bodiless=bodiless)


class _Stale(Exception):
    """A reused connection ended without a byte of a response; the request may be sent again."""


def _encoded(method: str, url: httpx.URL, headers: list[tuple[bytes, bytes]], route: ConnectionRoute) -> bytes:
    target = url.raw_path
    if route.forwards:
        target = b"%b://%b" % (url.raw_scheme, url.netloc) + target
        headers = [*headers, *proxy_headers(httpx.URL(route.proxy))]
    return request_head(method, target, headers)


class Exchange(httpx.AsyncByteStream):
    """Request and response on one connection; also the stream of the response's body.

    It is its own iterator, not an async generator, which would have to be closed explicitly when abandoned.

    Attributes:
        status: status of the response, once it has started.
        fields: header values by lower-case name.
    """

    status: int
    fields: Mapping[bytes, bytes]

    def __init__(self, connections: Connections, connection: HttpConnection, timeouts: Timeouts) -> None:
        self._connections = connections
        self._connection: HttpConnection | None = connection
        self._wire = connection.wire
        self._read_timeout = seconds(timeouts.get("read"))
        self._write_timeout = seconds(timeouts.get("write"))
        self._reader: ResponseReader

    async def start(self, head: bytes, body: bytes, *, bodiless: bool) -> Self:
        """Send the request, read up to the end of the headers, and return this object.

        The connection is closed if that fails or is cancelled.
        """
        try:
            # Joined here, so that no second copy of the body is retained while the response is pending.
            rest, broken = self._send_now(head + body)
            writing = bool(rest)
            timeout = self._write_timeout if writing else self._read_timeout
            with trio.CancelScope(deadline=trio.current_time() + timeout) as scope:
                if writing:
                    broken = await self._send(rest)
                    writing = False
                    scope.deadline = trio.current_time() + self._read_timeout
                await self._read_head(scope, broken, bodiless=bodiless)
            if scope.cancelled_caught:
                raise self._timed_out(writing=writing)
        except BaseException:  # cancelled too: a connection in an unknown state is closed
            self._give_up()
            raise
        reader = self._reader
        if reader.complete:
            self._finish()
        self.status = reader.status
        self.fields = reader.fields
        return self

    def response(self) -> httpx.Response:
        """Return the response, with this object as the stream of its body."""
        reader = self._reader
        return httpx.Response(
            reader.status,
            headers=reader.headers,
            stream=self,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": reader.reason},
        )

    def _send_now(self, data: bytes) -> tuple[bytes, Exception | None]:
        """Send without waiting; return the unsent rest, and an error as in `_send`."""
        try:
            return self._wire.send_now(data), None
        except BROKEN as error:
            return b"", error

    async def _send(self, data: bytes) -> Exception | None:
        """Send everything.

        A server may refuse a body before reading it completely, so an error is returned, not raised.
        """
        try:
            await self._wire.send(data)
        except BROKEN as error:
            return error
        return None

    async def _read_head(self, scope: trio.CancelScope, broken: Exception | None, *, bodiless: bool) -> None:
        assert self._connection is not None
        used_before = self._connection.used > 0
        self._connection.used += 1
        reader: ResponseReader | None = None  # created late: a thousand agents wait here and need none yet
        while True:
            try:
                data = await self._wire.receive()
            except BROKEN as error:
                if reader is None and used_before:
                    raise _Stale(str(error)) from error
                if broken is not None:
                    raise httpx.WriteError(f"the request could not be sent: {broken}") from broken
                raise httpx.ReadError(f"the connection broke before the response: {error}") from error
            if reader is None:
                if not data and used_before:
                    raise _Stale("the server closed the connection")
                reader = self._reader = ResponseReader(bodiless=bodiless)
            reader.feed(data)
            if reader.headed:
                break
            scope.deadline = trio.current_time() + self._read_timeout
        if broken is not None:
            # The rest of the request was never sent, so the next request on this connection would be read as a part of
            # it.
            reader.reusable = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await self.receive()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def receive(self) -> bytes:
        """Return the next piece of the body as received, not decompressed; empty at its end.

        Raises:
            httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError: the rest of the body can't be read.
        """
        reader = self._reader
        if not reader.chunks and not reader.complete:
            await self._read_on()
        return reader.chunks.popleft() if reader.chunks else b""

    async def _read_on(self) -> None:
        reader = self._reader
        try:
            if self._connection is None:
                raise httpx.ReadError("the response was closed before its body was read")
            while not reader.chunks and not reader.complete:
                with trio.CancelScope(deadline=trio.current_time() + self._read_timeout) as scope:
                    data = await self._wire.receive()
                if scope.cancelled_caught:
                    raise self._timed_out(writing=False)
                reader.feed(data)
        except BROKEN as error:
            self._give_up()
            raise httpx.ReadError(f"the connection broke in the middle of the response: {error}") from error
        except BaseException:  # cancelled too: a connection in an unknown state is closed
            self._give_up()
            raise
        if reader.complete:
            self._finish()

    async def aclose(self) -> None:
        """Close the connection unless the body was read completely. Never waits."""
        self._give_up()

    def _finish(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._reader.reusable:
            self._connections.give_back(connection)
        else:
            self._connections.discard(connection)

    def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.discard(connection)

    def _timed_out(self, *, writing: bool) -> httpx.TimeoutException:
        if writing:
            return httpx.WriteTimeout(f"the server accepted no data for {self._write_timeout:g} s")
        return httpx.ReadTimeout(f"the server sent no data for {self._read_timeout:g} s")


# --- connections


BROKEN = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""Exceptions of an unusable byte stream."""

REMEMBER = 30.0
"""Seconds for which a resolved address is reused without a lookup."""


class ConnectionRoute(msgspec.Struct, frozen=True):
    """Connection target: an origin, possibly through a proxy (its URL, else empty)."""

    scheme: str
    host: str
    port: int
    proxy: str = ""

    @property
    def forwards(self) -> bool:
        """True if requests are sent to the proxy itself, and not through a tunnel."""
        return bool(self.proxy) and self.scheme == "http"


class HttpConnection:
    """Open connection. `idle_since` is on trio's clock, `used` counts its requests."""

    __slots__ = ("idle_since", "route", "used", "wire")

    def __init__(self, route: ConnectionRoute, wire: Wire) -> None:
        self.route = route
        self.wire = wire
        self.used = 0
        self.idle_since = 0.0


class Connections:
    """Connections of one transport.

    Args:
        environ: environment for proxies and `SSL_CERT_FILE`.
        proxy: see `Proxies`.
        ssl_context: verification of servers, or None for the default.
        keep_alive: seconds for which an idle connection is retained.
        max_idle: maximum number of idle connections.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        proxy: str,
        ssl_context: ssl.SSLContext | None,
        *,
        keep_alive: float,
        max_idle: int,
    ) -> None:
        self._environ = environ
        self._proxies = Proxies(environ, proxy)
        self._context = ssl_context
        self._keep_alive = keep_alive
        self._max_idle = max_idle
        self._routes: dict[tuple[str, str, int | None], ConnectionRoute] = {}
        self._rows: dict[ConnectionRoute, deque[HttpConnection]] = {}
        self._by_age: OrderedDict[HttpConnection, None] = OrderedDict()
        self._busy: set[HttpConnection] = set()
        self._known: dict[tuple[str, int], tuple[str, float]] = {}
        self._closed = False

    @property
    def idle(self) -> int:
        """Number of idle connections."""
        return len(self._by_age)

    @property
    def busy(self) -> int:
        """Number of connections with a request."""
        return len(self._busy)

    def close(self) -> None:
        """Close all connections now; no more can be opened."""
        self._closed = True
        for connection in (*self._by_age, *self._busy):
            connection.wire.close()
        self._rows.clear()
        self._by_age.clear()
        self._busy.clear()

    def route(self, url: httpx.URL) -> ConnectionRoute:
        """Return the route to a URL's origin.

        Raises:
            httpx.UnsupportedProtocol: neither http nor https.
            ConfigError: the proxy setting is not a usable URL.
        """
        key = (url.scheme, url.host, url.port)
        route = self._routes.get(key)
        if route is None:
            if url.scheme not in ("http", "https") or not url.host:
                raise httpx.UnsupportedProtocol(f"'{url}' is not an http or https URL")
            port = port_of(url)
            proxy = self._proxies.of(url.scheme, url.host, port)
            route = ConnectionRoute(url.scheme, url.host, port, str(proxy) if proxy is not None else "")
            self._routes[key] = route
        return route

    async def acquire(
        self, route: ConnectionRoute, timeouts: Mapping[str, float | None], *, fresh: bool = False
    ) -> HttpConnection:
        """Return a connection for one request: an idle one, or (always, if `fresh`) a new one.

        The caller passes it to `give_back` or `discard` afterwards.

        Raises:
            httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError: no connection could be opened.
        """
        if self._closed:
            raise httpx.ConnectError("this HTTP client is closed")
        return (None if fresh else self._take(route)) or await self._open(route, timeouts.get("connect"))

    # --- idle ones

    def _take(self, route: ConnectionRoute) -> HttpConnection | None:
        """Return the freshest usable idle connection, or None."""
        row = self._rows.get(route)
        while row:
            connection = row.pop()
            if connection not in self._by_age:
                continue  # closed by age
            del self._by_age[connection]
            expired = connection.idle_since + self._keep_alive <= trio.current_time()
            if not expired and not connection.wire.is_stale():
                self._busy.add(connection)
                return connection
            connection.wire.close()
        return None

    def give_back(self, connection: HttpConnection) -> None:
        """Put a connection back into the pool, after its last response was read completely."""
        if connection not in self._busy:
            return  # closed meanwhile
        self._busy.discard(connection)
        now = trio.current_time()
        connection.idle_since = now
        row = self._rows.get(connection.route)
        if row is None:
            row = self._rows[connection.route] = deque()
        row.append(connection)
        self._by_age[connection] = None
        while self._by_age:
            oldest = next(iter(self._by_age))
            if len(self._by_age) <= self._max_idle and oldest.idle_since + self._keep_alive > now:
                break
            self._drop(oldest)

    def _drop(self, oldest: HttpConnection) -> None:
        del self._by_age[oldest]
        oldest.wire.close()
        row = self._rows[oldest.route]
        while row and row[0] not in self._by_age:
            row.popleft()
        if not row:
            del self._rows[oldest.route]

    def discard(self, connection: HttpConnection) -> None:
        """Close a connection that was in use."""
        connection.wire.close()
        self._busy.discard(connection)

    # --- new ones

    async def _open(self, route: ConnectionRoute, timeout: float | None) -> HttpConnection:
        """Open a connection: through the proxy if there is one, with TLS if the origin requires it."""
        with trio.CancelScope(deadline=trio.current_time() + seconds(timeout)) as scope:
            wire = await self._wire(route)
        if scope.cancelled_caught:
            raise httpx.ConnectTimeout(f"no connection to {route.host}:{route.port} within {timeout:g} s")
        if self._closed:
            wire.close()
            raise httpx.ConnectError("this HTTP client is closed")
        connection = HttpConnection(route, wire)
        self._busy.add(connection)
        return connection

    async def tunnel(self, host: str, port: int) -> Wire:
        """Open a raw connection through the proxy for https, or directly if there is no proxy. The caller closes it.

        Raises:
            httpx.ConnectError, httpx.ProxyError: it can't be opened.
        """
        proxy = self._proxies.of("https", host, port)
        return await self._piped(ConnectionRoute("https", host, port, str(proxy) if proxy is not None else ""))

    async def _wire(self, route: ConnectionRoute) -> Wire:
        wire = await self._piped(route)
        return await self._encrypted(wire, route.host) if route.scheme == "https" else wire

    async def _piped(self, route: ConnectionRoute) -> Wire:
        """Connect to the origin without its TLS, or to the proxy that forwards to it."""
        if not route.proxy:
            return await self._connected(route.host, route.port)
        proxy = httpx.URL(route.proxy)
        first = await self._connected(proxy.host, port_of(proxy))
        through = await self._encrypted(first, proxy.host) if proxy.scheme == "https" else first
        if route.forwards:
            return through
        try:
            await _tunnel(through, route, proxy)
        except BaseException:  # cancelled too: no socket leaks
            through.close()
            raise
        return through

    async def _connected(self, host: str, port: int) -> PlainWire:
        """Connect, reusing the address of the last connection for `REMEMBER` seconds."""
        address, until = self._known.get((host, port), ("", 0.0))
        if until > trio.current_time():
            try:
                return await connect(address, port)
            except OSError:
                del self._known[host, port]
        try:
            wire = await connect(host, port)
        except OSError as error:
            raise httpx.ConnectError(f"{host}:{port} can't be reached: {_reason(error)}") from error
        self._known[host, port] = (peer(wire), trio.current_time() + REMEMBER)
        return wire

    async def _encrypted(self, wire: Wire, host: str) -> TlsWire:
        if self._context is None:
            self._context = _usual_context(self._environ)
        try:
            return await encrypt(wire, self._context, host)
        except BROKEN as error:
            wire.close()
            why = error.__cause__ or error
            raise httpx.ConnectError(f"no TLS connection to {host}: {why}") from error
        except BaseException:  # cancelled too: no socket leaks
            wire.close()
            raise


def port_of(url: httpx.URL) -> int:
    """Return the port of a URL, by default that of its scheme."""
    return url.port or (443 if url.scheme == "https" else 80)


def seconds(timeout: float | None) -> float:
    """Return a timeout as a number; None means no limit."""
    return math.inf if timeout is None else timeout


async def _tunnel(wire: Wire, route: ConnectionRoute, proxy: httpx.URL) -> None:
    host = f"[{route.host}]" if ":" in route.host else route.host
    target = f"{host}:{route.port}".encode("ascii")
    reader = ResponseReader(bodiless=True)
    try:
        await wire.send(request_head("CONNECT", target, [(b"Host", target), *proxy_headers(proxy)]))
        while not reader.headed:
            reader.feed(await wire.receive())
    except BROKEN as error:
        raise httpx.ProxyError(f"the proxy {proxy.host} closed the connection: {error}") from error
    except httpx.RemoteProtocolError as error:
        raise httpx.ProxyError(f"the proxy {proxy.host}: {error}") from error
    if not 200 <= reader.status < 300:
        reason = reader.reason.decode("latin-1")
        raise httpx.ProxyError(
            f"the proxy {proxy.host} refused to connect to {target.decode()}: {reader.status} {reason}"
        )


def _usual_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    import certifi

    authorities = environ.get("SSL_CERT_FILE") or (None if environ.get("SSL_CERT_DIR") else certifi.where())
    context = ssl.create_default_context(cafile=authorities, capath=environ.get("SSL_CERT_DIR") or None)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _reason(error: OSError) -> str:
    """Return the system's error text, also if trio collected errors of several addresses."""
    inner = error.__cause__
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    shown = inner if isinstance(inner, OSError) else error
    if shown.errno is not None and shown.errno > 0:
        return os.strerror(shown.errno)
    return shown.strerror or str(shown)


# --- byte streams


RECEIVE = 65536


class PlainWire:
    """TCP socket, used without blocking.

    It parks once per read and costs a third of a trio `SocketStream`, which matters for a thousand agents. Closing is
    synchronous on both kinds of wires, because a wire is closed where a caller was cancelled, and nothing may wait
    there.
    """

    __slots__ = ("socket",)

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def send_now(self, data: bytes) -> bytes:
        """Send as much as the kernel's buffer accepts; return the rest."""
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            return data
        return data[sent:]

    async def send(self, data: bytes) -> None:
        """Send all of `data`. A checkpoint only if the kernel's buffer is full."""
        view = memoryview(data)
        while True:
            with contextlib.suppress(BlockingIOError):
                view = view[self.socket.send(view) :]
            if not view:
                return
            await trio.lowlevel.wait_writable(self.socket)

    async def receive(self) -> bytes:
        """Return the next bytes; empty when the server has closed its side. Always a checkpoint."""
        while True:
            await trio.lowlevel.wait_readable(self.socket)
            try:
                return self.socket.recv(RECEIVE)
            except BlockingIOError:
                continue

    def is_stale(self) -> bool:
        """Return True if an idle wire is unusable: the server has closed it, or has sent unrequested bytes."""
        return _has_news(self.socket)

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self.socket)
            self.socket.close()


class TlsWire:
    """TLS on a TCP socket, or on another TLS wire (a tunnel through an https proxy)."""

    __slots__ = ("socket", "stream")

    def __init__(self, stream: trio.SSLStream[trio.abc.Stream], sock: socket.socket) -> None:
        self.stream = stream
        self.socket = sock

    def send_now(self, data: bytes) -> bytes:
        """Send nothing and return all of `data`, because sending over TLS may have to wait for the peer."""
        return data

    async def send(self, data: bytes) -> None:
        """Send all of `data`."""
        await self.stream.send_all(data)

    async def receive(self) -> bytes:
        """Return the next decrypted bytes; empty when the server has closed its side."""
        return bytes(await self.stream.receive_some(RECEIVE))

    def is_stale(self) -> bool:
        """Return True if the socket has unread bytes or is closed, without waiting or reading."""
        return _has_news(self.socket)

    def close(self) -> None:
        """Close at once, without a close notification: HTTP frames its bodies itself."""
        if self.socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self.socket)
            self.socket.close()


Wire: TypeAlias = PlainWire | TlsWire
"""Open byte stream. Every method raises OSError or a trio resource error when it is broken."""


def _has_news(sock: socket.socket) -> bool:
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


async def connect(host: str, port: int) -> PlainWire:
    """Connect to a host by name or address.

    Raises:
        OSError: the connection is refused; for a name, at all of its addresses.
    """
    address = as_address(host)
    if address is not None:
        return PlainWire(await _connect_address(address, port))
    stream = await trio.open_tcp_stream(host, port)
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    return PlainWire(_prompt(sock))


def peer(wire: PlainWire) -> str:
    """Return the IP address of the server at the other end of a connection."""
    return str(wire.socket.getpeername()[0])


async def encrypt(wire: Wire, context: ssl.SSLContext, host: str) -> TlsWire:
    """Start TLS on `wire`, verifying the certificate for `host`. The wire must not be used any more.

    Raises:
        trio.BrokenResourceError: the handshake failed; its cause gives the reason.
    """
    below: trio.abc.Stream
    if isinstance(wire, PlainWire):
        sock = wire.socket
        below = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
    else:
        sock = wire.socket
        below = wire.stream
    stream: trio.SSLStream[trio.abc.Stream] = trio.SSLStream(
        below, context, server_hostname=host, https_compatible=True
    )
    await stream.do_handshake()
    return TlsWire(stream, sock)


async def _connect_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> socket.socket:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        code = sock.connect_ex((str(address), port))
        if code == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:  # cancelled too: no socket leaks
        sock.close()
        raise
    return _prompt(sock)


def _prompt(sock: socket.socket) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # send small packets without delay
    return sock


# --- single requests


MOST = 64 * 1024
"""Maximum bytes of a response to `simple_request`."""

SHOWN = 200
"""Maximum characters of such a response in an error."""


class SimpleResponse(msgspec.Struct, frozen=True):
    """Complete response to a small request, with any status."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def explanation(self) -> str:
        """Beginning of the body, redacted, for errors."""
        return hidden_head(self.body.decode("utf-8", errors="replace").strip(), SHOWN) or "no explanation"


async def simple_request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    environ: Mapping[str, str],
    timeout: float,
    proxy: str = "",
    transport: TrioTransport | None = None,
) -> SimpleResponse:
    """Send one small request, for a token or a role, on a connection of its own. Redirects are not followed.

    Args:
        environ: environment for proxies and certificates.
        timeout: seconds for connecting, and for each wait afterwards.
        proxy: URL, `-` for none, empty for the environment's.
        transport: replaces a transport for `environ` and `proxy`; closed afterwards.

    Raises:
        CredentialsError: the response is longer than `MOST`, so it is not from such a service.
        UpstreamError: the URL is invalid, or no complete response arrived. The error has no HTTP status.
    """
    transport = transport or TrioTransport(environ=environ, proxy=proxy)
    timeouts = {"connect": timeout, "read": timeout, "write": timeout, "pool": None}
    where = url
    try:
        place = httpx.URL(url)
        where = place.host
        fields = {"host": place.netloc.decode("ascii"), **headers}
        fields = {"accept": "*/*", "content-length": str(len(body))} | {k.lower(): v for k, v in fields.items()}
        head = [(name.encode("ascii"), value.encode("latin-1")) for name, value in fields.items()]
        response = await transport.send(method, place, head, body, timeouts)
        read = bytearray()
        async for piece in response.aiter_raw():
            read += piece
            if len(read) > MOST:
                raise CredentialsError(f"{where}: the response is longer than {MOST} bytes")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UpstreamError(f"{where}: {str(error) or type(error).__name__}") from error
    finally:
        transport.connections.close()
    return SimpleResponse(response.status_code, response.headers, bytes(read))
