"""Shared parts of the links over HTTP: requests to one server, bounded answers, and `WebLink`.

The configured headers, and tokens (`auth.access`), are sent to the configured origin only. A redirect is followed if it
has the same origin and keeps the method, such as one that adds a slash. Answers have no time limit here, since a call
has its own and a server may be silent for all of it. Only connecting and writing are limited.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import httpx
import msgspec
import trio

from .....protocol.errors import (
    CallboardError,
    ConfigError,
    HttpRefused,
    McpError,
    McpLost,
    McpUnsent,
    ShuttingDown,
    UpstreamError,
)
from .....protocol.jsonrpc import UNREADABLE, Message, decode_all, encode_notification
from .....protocol.mcp.config import Server
from .....protocol.mcp.model import META_VERSION
from .....supervisors import Actor
from ....io.http.http1 import unpacked, unpacker_of
from ....io.http.transport import Exchange, TrioTransport
from ....io.oauth.token import OAuthToken
from ..auth.access import TRIES, ServerAccess
from .link import Json, OutgoingCall, Receiver
from .texts import lacking, refusal

CONNECT_WITHIN = 10.0
WRITE_WITHIN = 60.0

KEEP_ALIVE = 4.0
"""Seconds an idle connection is kept open: less than the 5 of Node's and Python's servers. A request that meets the
server's closing of a connection is not repeated if it may have been executed."""

REDIRECTS = 5

REFUSAL = 64 * 1024
"""Bytes of a refusal's explanation that are read."""

REFUSAL_WITHIN = 5.0

UNKNOWN = "its outcome is unknown"
"""End of the error text for a request without an answer."""

BAD_URL = (httpx.InvalidURL, ValueError)
"""Exceptions for a malformed URL; for names that begin with `xn--`, raised only on access to the host."""

WITHIN = 30.0
"""Seconds for a server to accept a message."""

AT_ONCE = 16
"""Messages sent concurrently."""

WAITING = 4096
"""Messages waiting to be sent at most."""

INITIALIZED = "notifications/initialized"

JSON = "application/json"
EVENTS = "text/event-stream"


class HttpServerAccess:
    """HTTP access to one server.

    Args:
        access: tokens for the server, if it may require them.

    Attributes:
        who: name of the server in errors.

    Raises:
        ConfigError: its address or a header is invalid.
    """

    def __init__(self, server: Server, environ: Mapping[str, str], access: ServerAccess | None = None) -> None:
        self.server = server
        self._access = access
        self.who = f"MCP server '{server.name}'"
        self._transport = TrioTransport(environ=environ, keep_alive=KEEP_ALIVE)
        self._timeouts = {"connect": CONNECT_WITHIN, "write": WRITE_WITHIN, "read": None, "pool": None}
        try:
            self.url = httpx.URL(server.url)
            self._headers = httpx.Headers({"user-agent": "callboard", **server.headers})
        except (httpx.InvalidURL, UnicodeError) as error:
            raise ConfigError(f"the url or a header of MCP server '{server.name}' is invalid: {error}") from error

    def close(self) -> None:
        """Close all connections immediately; active reads raise `McpLost`."""
        self._transport.connections.close()

    async def send(
        self,
        method: str,
        what: str,
        *,
        url: httpx.URL | None = None,
        headers: Mapping[str, str],
        body: bytes | None = None,
        once: bool = False,
    ) -> httpx.Response:
        """Send a request and wait for status and headers of its answer. The caller reads it with `read`, or closes it.

        Args:
            what: purpose of the request, for errors.
            url: address, if not the server's own.
            body: JSON.
            once: never send it a second time, even if the server closes the connection without an answer.

        Raises:
            McpUnsent: the server was not reached.
            McpLost: the connection broke.
            McpError: the request can't be sent, or there is an error in getting a token for it.
        """
        url = url or self.url
        if self._access is None:
            return await self._sent(method, what, url, headers, body, once=once)
        token = await self._token(self._access.token, what)
        response = await self._sent(method, what, url, headers, body, once=once, token=token)
        for _ in range(TRIES):
            another = await self._another(response, token, what)
            if another is None:
                break
            await response.aclose()
            token = another
            response = await self._sent(method, what, url, headers, body, once=once, token=token)
        return response

    async def _another(self, response: httpx.Response, refused: OAuthToken | None, what: str) -> OAuthToken | None:
        """Return another token after a refusal; None if the server did not refuse the token, or there is no other."""
        access = self._access
        assert access is not None
        if response.status_code == 401:
            return await self._token(lambda: access.another(refused), what)
        if response.status_code == 403 and (scopes := lacking(response)) is not None:
            return await self._token(lambda: access.wider(refused, scopes), what)
        return None

    async def _token(self, get: Callable[[], Awaitable[OAuthToken | None]], what: str) -> OAuthToken | None:
        try:
            return await get()
        except CallboardError as error:  # its authorization server is down, or a file is not readable
            raise McpError(f"{what} was not sent to {self.who}: {error}") from error

    async def _sent(
        self,
        method: str,
        what: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        once: bool,
        token: OAuthToken | None = None,
    ) -> httpx.Response:
        if token is not None:
            headers = {**headers, "authorization": f"Bearer {token.access_token}"}
        for _ in range(REDIRECTS + 1):
            request = self._request(method, url, headers, body)
            request.extensions["once"] = once
            try:
                response = await self._transport.handle_async_request(request)
            except httpx.HTTPError as error:
                raise self._broken(what, error) from error
            target = _redirection(request, response)
            if target is None:
                return response
            await response.aclose()
            url = target
        raise McpError(f"{self.who} answered {what} with more than {REDIRECTS} redirects")

    def _request(self, method: str, url: httpx.URL, headers: Mapping[str, str], body: bytes | None) -> httpx.Request:
        more = {"host": url.netloc.decode("ascii"), "accept-encoding": "identity", **headers}
        if body is not None:
            more |= {"content-type": JSON, "content-length": str(len(body))}
        sent = self._headers.copy()
        sent.update(httpx.Headers(more, encoding="utf-8"))  # servers choose the ids of events and sessions freely
        return httpx.Request(
            method,
            url,
            headers=sent,
            stream=httpx.ByteStream(body or b""),
            extensions={"timeout": self._timeouts},
        )

    async def read(self, response: httpx.Response, take: Callable[[bytes], bool], what: str) -> bool:
        """Pass the decompressed body on as it arrives, until `take` returns True; return False if it never does.

        Raises:
            McpLost: the connection broke.
            McpError: it has an encoding that was not requested.
        """
        stream = response.stream
        assert isinstance(stream, Exchange)
        encoding = response.headers.get("content-encoding", "identity")
        # Some servers compress although `identity` was requested.
        unpacker = unpacker_of(encoding)
        if unpacker is None and encoding.strip().lower() not in ("identity", ""):
            raise McpError(f"{self.who} compressed its answer with {encoding!r}, which was not requested")
        try:
            while piece := await stream.receive():
                for part in (piece,) if unpacker is None else unpacked(unpacker, piece):
                    if take(part):
                        return True
        except httpx.HTTPError as error:
            raise self._broken(what, error) from error
        except UpstreamError as error:  # raised by the event parser
            raise self.too_long(what) from error
        return False

    async def whole(self, response: httpx.Response, what: str) -> bytes:
        """Return the whole body. Its connection is released afterwards.

        Raises:
            McpError: it is longer than the server's message limit.
            McpLost: the connection broke.
        """
        body = bytearray()
        try:
            if await self.read(response, _collector(body, self.server.max_message_bytes), what):
                raise self.too_long(what)
        finally:
            await response.aclose()
        return bytes(body)

    async def refused(self, response: httpx.Response, what: str, *, session: bool = False) -> McpError:
        """Return the error for an answer with an error status; see `texts.refusal`."""
        body = bytearray()
        try:
            with trio.move_on_after(REFUSAL_WITHIN):
                await self.read(response, _collector(body, REFUSAL), what)
        except McpError:
            pass  # the status is sufficient
        finally:
            await response.aclose()
        why = "" if self._access is None else self._access.why
        return refusal(self.server, what, response, bytes(body[:REFUSAL]), session=session, why=why)

    def messages(self, data: bytes, what: str) -> list[Message]:
        """Return the messages in a body or in the data of an event.

        Raises:
            McpError: the data is not a message.
        """
        try:
            return decode_all(data)
        except (ValueError, *UNREADABLE) as error:
            begins = data[:80].decode("utf-8", errors="replace")
            raise McpError(
                f"{self.who} answered {what} with an invalid MCP message ({error}); it begins: {begins!r}"
            ) from error

    def unexpected(self, response: httpx.Response, what: str) -> McpError:
        """Return the error for a successful answer of a content type that no MCP server sends."""
        kind = content_type(response) or "nothing"
        return HttpRefused(
            f"{self.who} answered {what} with {kind} (HTTP {response.status_code}), which"
            " is neither JSON nor an event stream; check its `url` in mcp.json",
            response.status_code,
        )

    def too_long(self, what: str) -> McpError:
        """Return the error for a message beyond the size limit."""
        return McpError(
            f"{self.who} answered {what} with more than {self.server.max_message_bytes} bytes;"
            " raise `max_message_bytes` of its entry in mcp.json"
        )

    def _broken(self, what: str, error: httpx.HTTPError) -> McpError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
            return McpUnsent(f"{self.who}: {error}")
        if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.DecodingError):
            return McpError(f"{self.who}: {error}")
        why = str(error) or type(error).__name__
        return McpLost(f"the connection to {self.who} was lost during {what}: {why}")


class WebLink(ABC):
    """Shared base of the links over HTTP: end of requests, and sending of messages without a reply; see `link.Link`.

    Such messages are notifications, and answers to the server's requests. A child of the link's own actor sends each, a
    few at a time. A failed one is dropped and counted, since no caller could react: the next request notices a dead
    server.

    Attributes:
        own: the link's own actor.
        dropped: number of messages that could not be sent.
        opened: cleared while `notifications/initialized` is being sent, which no request may overtake.
    """

    own: Actor

    def __init__(self, web: HttpServerAccess, receiver: Receiver) -> None:
        self.modern = False
        self.version = ""
        self.dropped = 0
        self.opened = trio.Event()
        self.opened.set()
        self._web = web
        self._receiver = receiver
        self.lost: McpError | None = None
        self._places = trio.Semaphore(AT_ONCE)

    @abstractmethod
    async def _ask(self, outgoing: OutgoingCall) -> msgspec.Raw:
        """Send a request and wait for its result."""

    @abstractmethod
    async def _post(self, method: str, body: bytes) -> None:
        """Send one message; raises `McpError` on failure. `method` is "" for an answer."""

    def _lose(self, error: McpError) -> None:
        if self.lost is None:
            self.lost = error
            self._web.close()
            self.opened.set()

    def _check(self) -> None:
        if self.lost is not None:
            raise McpUnsent(str(self.lost))

    async def request(self, outgoing: OutgoingCall) -> msgspec.Raw:
        await self.opened.wait()
        self._check()
        try:
            return await self._ask(outgoing)
        except trio.Cancelled:
            if outgoing.method != "initialize" and not version_in(outgoing):  # otherwise the closed response cancels it
                self.notify("notifications/cancelled", {"requestId": outgoing.id, "reason": "no longer needed"})
            raise
        except McpLost as error:
            why = self.lost or error  # the cause of the loss explains more than its effect on this request
            raise (McpUnsent(str(why)) if isinstance(error, McpUnsent) else McpLost(f"{why}; {UNKNOWN}")) from error

    def notify(self, method: str, params: Mapping[str, Json]) -> None:
        self._soon(method, encode_notification(method, params))

    def respond(self, message: bytes, about: OutgoingCall | None = None) -> None:  # noqa: ARG002 - other links need it
        self._soon("", message)

    def _soon(self, method: str, body: bytes) -> None:
        if self.own.child_count < WAITING:
            with suppress(ShuttingDown):
                self.own.spawn(self._send, method, body, name="post", link=False)
                if method == INITIALIZED:
                    # Later requests wait for this message: a server may refuse what overtakes it.
                    self.opened = trio.Event()
                return
        self.dropped += 1

    async def _send(self, _own: Actor, method: str, body: bytes) -> None:
        try:
            async with self._places:
                with trio.fail_after(WITHIN):
                    await self._post(method, body)
        except (McpError, trio.TooSlowError):
            self.dropped += 1
        finally:
            if method == INITIALIZED:
                self.opened.set()


def version_in(outgoing: OutgoingCall) -> str:
    """Return the revision that a request of the modern era names in itself; "" for an older request."""
    meta = outgoing.params.get("_meta")
    return str(meta.get(META_VERSION, "")) if isinstance(meta, Mapping) else ""


def content_type(response: httpx.Response) -> str:
    """Return the content type of an answer, without parameters."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def within_origin(url: httpx.URL, target: httpx.URL) -> bool:
    """Return True if `target` has the origin of `url`: same scheme, host and port, or the same host with https."""
    if (url.scheme, url.host, url.port) == (target.scheme, target.host, target.port):
        return True
    upgraded = (url.scheme, url.port, target.scheme, target.port) == ("http", None, "https", None)
    return upgraded and url.host == target.host


def _redirection(request: httpx.Request, response: httpx.Response) -> httpx.URL | None:
    """Return the address for the same request after an allowed redirect."""
    # 301 to 303 may change the method of a POST to GET, which would lose its body.
    if request.method == "GET":
        moved = response.status_code in (301, 302, 303, 307, 308)
    else:
        moved = response.status_code in (307, 308)
    if not moved or "location" not in response.headers:
        return None
    try:
        target = request.url.join(response.headers["location"])
        return target if within_origin(request.url, target) else None
    except BAD_URL:
        return None


def _collector(body: bytearray, limit: int) -> Callable[[bytes], bool]:
    def take(piece: bytes) -> bool:
        body.extend(piece)
        return len(body) > limit

    return take
