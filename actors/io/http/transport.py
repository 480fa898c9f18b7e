"""HTTP for a thousand agents at once: an `httpx.AsyncBaseTransport` on trio, and single requests over it.

httpx's own pool examines every connection for every request, so a thousand concurrent requests cost several times as
much as sequential ones. This pool searches nothing (see `connections`), opens one cancel scope per request, and has no
background task:

    client = httpx.AsyncClient(transport=TrioTransport())

A connection carries one request at a time, in the task of its caller, and is reused only after its response was read
completely. In every other case (cancellation, timeout, an error, a reader that stops early) it is closed at once. The
provider can then stop generating the response.

A server may close an idle connection just when it is reused. If not a byte of a response has arrived, the request is
sent again on a new connection. The extension `once` forbids that, for work that must not be done twice. Request bodies
are bytes, not streams.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, Self

import httpx
import msgspec
import trio

from ....protocol.errors import CredentialsError, UpstreamError
from ..secret_redaction import hidden_head
from .connections import BROKEN, ConnectionRoute, Connections, HttpConnection, proxy_headers, seconds
from .http1 import ResponseReader, request_head

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
        """Send the request and read up to the end of the headers."""
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
        """Return the next piece of the body as received; empty at its end.

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
        UpstreamError: there is no response; without a status.
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
