"""Connection pool of a transport, its byte streams, and proxy selection. Every operation is O(1).

Idle connections are in two orders: by origin, the freshest at the end, which the next request takes; and by age over
all origins, from whose beginning expired ones are dropped whenever a connection is returned. So nothing is searched and
no timer is needed. A connection closed by age remains in its origin's row. It is skipped when it is popped, which
happens only after all younger ones.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import ipaddress
import math
import os
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import httpx
import msgspec
import trio

from ....protocol.errors import ConfigError
from .http1 import ResponseReader, request_head

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
    """Return the port of a URL."""
    return url.port or (443 if url.scheme == "https" else 80)


def seconds(timeout: float | None) -> float:
    """Return a timeout as a number; None means no limit."""
    return math.inf if timeout is None else timeout


def proxy_headers(proxy: httpx.URL) -> list[tuple[bytes, bytes]]:
    """Return the authorization header for the proxy, if its URL has credentials."""
    if not proxy.userinfo:
        return []
    words = f"{proxy.username}:{proxy.password}".encode()
    return [(b"Proxy-Authorization", b"Basic " + base64.b64encode(words))]


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
        """Receive some bytes, or none at the end. A checkpoint."""
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
        """Receive some bytes, or none at the end."""
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
    address = _as_address(host)
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


@lru_cache(maxsize=1_024)
def _as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if not host[-1:].isdigit() and ":" not in host:
        return None  # a name, by a cheap test
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


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


# --- proxies


DIRECT = "-"
"""Proxy setting for a direct connection, whatever the environment says."""


class Proxies:
    """Proxy selection by origin, from the standard variables.

    `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case (lower case wins, as in curl). As
    in Go, requests to loopback addresses never use a proxy. So a local model server works even if `HTTP_PROXY` is set
    and `NO_PROXY` was forgotten.

    Args:
        environ: environment variables.
        fixed: one proxy for everything (a URL), `DIRECT`, or empty to use `environ`.
    """

    def __init__(self, environ: Mapping[str, str], fixed: str = "") -> None:
        self._fixed = fixed.strip()
        self._https = _variable(environ, "https_proxy") or _variable(environ, "all_proxy")
        self._http = _http_proxy(environ) or _variable(environ, "all_proxy")
        self._exceptions = [part.strip().lower() for part in _variable(environ, "no_proxy").split(",") if part.strip()]

    def of(self, scheme: str, host: str, port: int) -> httpx.URL | None:
        """Return the proxy for an origin, or None for a direct connection.

        Raises:
            ConfigError: the setting is not a usable proxy URL.
        """
        if self._fixed:
            return None if self._fixed == DIRECT else _url(self._fixed)
        chosen = self._https if scheme == "https" else self._http
        excepted = any(_matches(pattern, host.lower(), port) for pattern in self._exceptions)
        # The proxy's own loopback is another machine's, so these hosts never go through one; Go's net/http decides the
        # same.
        if not chosen or excepted or _is_loopback(host):
            return None
        return _url(chosen)


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip() or environ.get(name.upper(), "").strip()


def _http_proxy(environ: Mapping[str, str]) -> str:
    """Return the http proxy.

    In a CGI script a client can set HTTP_PROXY by a `Proxy:` header, so only lower case counts.
    """
    if "REQUEST_METHOD" in environ:
        return environ.get("http_proxy", "").strip()
    return _variable(environ, "http_proxy")


def _url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text if "://" in text else f"http://{text}")
    except httpx.InvalidURL as error:
        raise ConfigError(f"the address of the proxy, '{text}', is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"the proxy '{text}' can't be used: only http:// and https:// proxies are supported")
    return url


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _as_address(host)
    return address is not None and address.is_loopback


def _matches(pattern: str, host: str, port: int) -> bool:
    """Match `*`, `host`, `.domain`, `*.domain`, `host:port`, an address, or a network such as `10.0.0.0/8`."""
    if pattern == "*":
        return True
    address = _as_address(host)
    if "/" in pattern:
        try:
            return address is not None and address in ipaddress.ip_network(pattern, strict=False)
        except ValueError:
            return False
    name, colon, number = pattern.rpartition(":")
    # `[::1]:80` has a port; the last part of a bare `::1` is digits too, but belongs to the address.
    if colon and number.isdigit() and (":" not in name or name.endswith("]")):
        if int(number) != port:
            return False
        pattern = name.strip("[]")
    pattern = pattern.removeprefix("*")
    domain = pattern if pattern.startswith(".") else f".{pattern}"
    # Only names match by suffix: `.0.0.1` must not match 10.0.0.1.
    return host == pattern.lstrip(".") or (address is None and host.endswith(domain))
