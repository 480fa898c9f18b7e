"""Connection pool of a transport. Every operation is O(1).

Idle connections are in two orders: by origin, the freshest at the end, which the next request takes; and by age over
all origins, from whose beginning expired ones are dropped whenever a connection is returned. So nothing is searched and
no timer is needed. A connection closed by age remains in its origin's row. It is skipped when it is popped, which
happens only after all younger ones.
"""

from __future__ import annotations

import base64
import math
import os
import ssl
from collections import OrderedDict, deque
from collections.abc import Mapping

import httpx
import msgspec
import trio

from .http1 import ResponseReader, request_head
from .proxies import Proxies
from .streams import PlainWire, TlsWire, Wire, connect, encrypt, peer

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
            raise httpx.ConnectError("this transport is closed")
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
        """Return a connection whose last response was read completely to the pool."""
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
            raise httpx.ConnectTimeout(f"{route.host}:{route.port} was not reached within {timeout:g} s")
        if self._closed:
            wire.close()
            raise httpx.ConnectError("this transport is closed")
        connection = HttpConnection(route, wire)
        self._busy.add(connection)
        return connection

    async def tunnel(self, host: str, port: int) -> Wire:
        """Return a raw connection through the proxy that https would use. The caller closes it.

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
        raise httpx.ProxyError(f"the proxy {proxy.host} hung up: {error}") from error
    except httpx.RemoteProtocolError as error:
        raise httpx.ProxyError(f"the proxy {proxy.host}: {error}") from error
    if not 200 <= reader.status < 300:
        reason = reader.reason.decode("latin-1")
        raise httpx.ProxyError(f"the proxy {proxy.host} refused {target.decode()}: {reader.status} {reason}")


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
