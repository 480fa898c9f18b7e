"""Links over HTTP: Streamable HTTP in both eras, and the older HTTP with server-sent events.

**Both.** The configured headers, and tokens (`auth.access`), are sent to the configured origin only. A redirect is
followed if it keeps the method and the origin, such as one that adds a slash. One from http to https of the same host
is followed too. Answers have no time limit here, since a call has its own and a server may be silent for all of it.
Only connecting and writing are limited.

**Streamable HTTP** (`HttpLink`). Every request is a POST of its own, sent in the requesting task. Its answer is JSON,
or an event stream in which the server may send other messages first. So no single connection carries all requests. A
cancelled request closes its response, which notifies a server of the modern era. Servers of earlier revisions get
`notifications/cancelled`.

Earlier revisions may have more:

- A *session*: its id comes with the answer to `initialize`, is sent with every later request, and is deleted at the
  end. When the server no longer knows it, the link is lost (`McpUnsent`: the request has not been executed).
- A stream for the server's own messages. If the server has one, the client opens it before it sends anything that could
  cause such messages: without a stream the server drops them.
- Streams that can be resumed: after a break the client requests the events after the last one with an id.

Messages without a waiting task (notifications, answers to the server, rests of responses) and the server's own stream
are handled by children of the link's actor. That actor crashes when the link is lost, and its owner with it.

**HTTP with server-sent events** (`SseLink`): the transport of 2024-11-05, which some servers still use exclusively. A
GET opens a stream that lasts as long as the connection. Its first event, `endpoint`, names the address to which
messages are POSTed. All messages of the server arrive on the stream, answers included. When the stream ends, the
connection is lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

import httpx
import msgspec
import trio

from .....protocol.errors import (
    ActorFailed,
    CallboardError,
    ConfigError,
    HttpRefused,
    McpError,
    McpLost,
    McpUnsent,
    ShuttingDown,
    UpstreamError,
)
from .....protocol.jsonrpc import (
    UNREADABLE,
    ErrorResponse,
    Message,
    Notification,
    Request,
    Result,
    decode_all,
    encode_notification,
    encode_request,
    number,
)
from .....protocol.mcp.config import Server
from .....protocol.mcp.model import META_VERSION
from .....supervisors import Actor, Backoff
from ....io.http.http1 import unpacked, unpacker_of
from ....io.http.sse import SseEvent, SseParser
from ....io.http.transport import Exchange, TrioTransport
from ....io.oauth.token import OAuthToken
from ..auth.access import TRIES, ServerAccess
from .link import Json, OutgoingCall, Receiver
from .mirrored import header_value
from .texts import described, lacking, refusal, refused

CONNECT_WITHIN = 10.0
WRITE_WITHIN = 60.0

KEEP_ALIVE = 4.0
"""Seconds an idle connection is kept open: less than the 5 of Node's and Python's servers. A request that meets the
server's closing of a connection is not repeated if it may have been executed."""

REDIRECTS = 5

REFUSAL = 64 * 1024
"""Bytes of a refusal's explanation that are read."""

REFUSAL_WITHIN = 5.0

UNKNOWN = "whether the server executed it is unknown"
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
            raise ConfigError(f"the `url` or a header of MCP server '{server.name}' is not valid: {error}") from error

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
        """Send a request and return its response, whatever the status, as soon as its headers have arrived.

        The caller reads the response with `read`, or closes it. Allowed redirects are followed. A request that the
        server refuses for its token is repeated with another token, if there is one, up to `TRIES` times.

        Args:
            what: purpose of the request, for errors.
            url: address, if not the server's own.
            body: JSON.
            once: never send it a second time, even if the server closes the connection without an answer.

        Raises:
            McpUnsent: the server was not reached.
            McpLost: the connection broke.
            McpError: the request can't be sent, its token can't be fetched, or more than `REDIRECTS` redirects follow.
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
            McpError: its content encoding is unknown or invalid, or `take` met an event that is too long.
        """
        stream = response.stream
        assert isinstance(stream, Exchange)
        encoding = response.headers.get("content-encoding", "identity")
        # Some servers compress although `identity` was requested.
        unpacker = unpacker_of(encoding)
        if unpacker is None and encoding.strip().lower() not in ("identity", ""):
            raise McpError(f"{self.who} compressed its response with {encoding!r}, which was not requested")
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
            McpError: it is longer than the server's message limit, or its content encoding is unknown or invalid.
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
        """Return the error for an answer with an error status; see `texts.refusal`.

        Reads up to `REFUSAL` bytes of its explanation for at most `REFUSAL_WITHIN` seconds, and closes the response.
        """
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
                self.notify(
                    "notifications/cancelled",
                    {"requestId": outgoing.id, "reason": "the client no longer needs the result"},
                )
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
    """Return the content type of an answer in lower case, without parameters; "" if it names none."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def within_origin(url: httpx.URL, target: httpx.URL) -> bool:
    """Return True if `target` has the origin of `url`, or that of the same host with https in place of http.

    The second case requires the default port in both.
    """
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


DELETE_WITHIN = 1.0

LINGER = 1.0
"""Seconds for a stream to end after its answer, so that its connection can be reused."""

HEARD_WITHIN = 2.0
"""Seconds for a server to answer whether it has a stream for its own messages."""

RETRY = 1.0
"""Seconds before a stream is resumed if the server names no interval."""

MIN_RETRY, MAX_RETRY = 0.1, 60.0
STREAM_TRIES = 5
"""Requests that try to resume one broken response, at most."""

_NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}


@asynccontextmanager
async def open_http(
    me: Actor, server: Server, receiver: Receiver, environ: Mapping[str, str], access: ServerAccess | None = None
) -> AsyncIterator[HttpLink]:
    """Yield a link to a server. Nothing is sent yet, so an unreachable server is only noticed at the first request.

    Args:
        environ: for proxies and certificates, see `TrioTransport`.
        access: tokens for the server.

    Raises:
        ConfigError: the server's address or a header is invalid.
    """
    link = HttpLink(HttpServerAccess(server, environ, access), receiver)
    ref = await me.start(link.live, name="http")
    try:
        yield link
    finally:
        with me.cleanup():
            await link.close()
            ref.cancel()
            await ref.wait()


class ResponseReading:
    """Reader of a response: passes its messages on until the answer arrives.

    Attributes:
        about: the request that it answers; None for a stream of the server's own messages.
        events: number of events so far.
        answer: the answer, once it has arrived.
    """

    def __init__(self, web: HttpServerAccess, receiver: Receiver, about: OutgoingCall | None) -> None:
        self.about = about
        self.what = "listening" if about is None else described(about)
        self.events = 0
        self.parser = SseParser(web.server.max_message_bytes)
        self._web = web
        self._receiver = receiver
        self.answer: Result | ErrorResponse | None = None

    def result(self) -> msgspec.Raw:
        """Return the result of the answer.

        Raises:
            McpError: the answer is a refusal, or is missing.
        """
        if isinstance(self.answer, Result):
            return self.answer.result
        if self.answer is None:
            raise McpError(f"{self._web.who} answered {self.what} with messages that include no response to it")
        assert self.about is not None, "only requests have a response"
        raise refused(self._web.server.name, self.about, self.answer.error)

    def begin_again(self) -> None:
        """Prepare for a response that resumes a broken one: discard a partial event, keep its id and retry interval."""
        old, self.parser = self.parser, SseParser(self._web.server.max_message_bytes)
        self.parser.last_id, self.parser.retry = old.last_id, old.retry

    def take(self, data: bytes) -> bool:
        """Process the next bytes of an event stream. Return True if they complete the answer.

        Raises:
            McpError: an event is not a message.
            UpstreamError: an event is too long.
        """
        for event in self.parser.feed(data):
            self.events += 1
            if event.kind == "message" and event.data:
                self.take_messages(event.data.encode())
                if self.answer is not None:
                    return True
        return False

    def take_messages(self, data: bytes) -> None:
        """Store the answer among the messages of `data`, and pass notifications and requests on to the receiver.

        Raises:
            McpError: the data is not a message.
        """
        for message in self._web.messages(data, self.what):
            self._take(message)

    def _take(self, message: Message) -> None:
        if isinstance(message, Notification):
            self._receiver.on_notification(message, self.about)
        elif isinstance(message, Request):
            self._receiver.on_request(message, self.about)
        elif self.about is not None and self.answer is None and _answers(message, self.about):
            self.answer = message


class HttpLink(WebLink):
    """Link over Streamable HTTP; see the module and `link.Link`."""

    def __init__(self, web: HttpServerAccess, receiver: Receiver) -> None:
        super().__init__(web, receiver)
        self._session = ""
        self._gone = trio.Event()
        self._listens = trio.Event()

    async def live(self, own: Actor) -> NoReturn:
        """Body of the link's own actor: wait until the link is lost, then crash with the reason."""
        self.own = own
        own.started()
        await self._gone.wait()
        assert self.lost is not None
        raise self.lost

    async def close(self) -> None:
        """End the session on the server, if there is one, and close all connections. Takes `DELETE_WITHIN` at most."""
        if self._session and self.lost is None:
            with trio.move_on_after(DELETE_WITHIN), suppress(McpError):  # the server also ends unused sessions itself
                response = await self._web.send("DELETE", "the request to end the session", headers=self._headers(""))
                await response.aclose()
        if self.lost is None:
            self.lost = McpLost(f"the connection to {self._web.who} was closed")
        self._web.close()
        self.opened.set()

    def _lose(self, error: McpError) -> None:
        super()._lose(error)
        self._gone.set()

    # --- requests

    async def _ask(self, outgoing: OutgoingCall) -> msgspec.Raw:
        method, what = outgoing.method, described(outgoing)
        response = await self._web.send(
            "POST",
            what,
            headers={**self._headers(method, outgoing), **outgoing.headers},
            body=encode_request(outgoing.id, method, outgoing.params),
            # A repeated call of a tool could execute twice.
            once=method == "tools/call",
        )
        if response.status_code >= 300:
            raise await self._refused(response, what)
        if method == "initialize":
            self._session = response.headers.get("mcp-session-id", "")
        kind = content_type(response)
        if kind not in (JSON, EVENTS):
            await response.aclose()
            raise self._web.unexpected(response, what)
        reading = ResponseReading(self._web, self._receiver, outgoing)
        if kind == EVENTS:
            await self._until_answered(response, reading)
        else:
            reading.take_messages(await self._web.whole(response, what))
        return reading.result()

    async def _until_answered(self, response: httpx.Response, reading: ResponseReading) -> None:
        """Read a stream, and the responses that resume it, until the answer arrives."""
        while True:
            try:
                if await self._web.read(response, reading.take, reading.what):
                    return self._linger(response)
                lost = McpLost(f"{self._web.who} ended its response to {reading.what} before sending the result")
            except McpLost as error:
                lost = error
            finally:
                if reading.answer is None:
                    await response.aclose()
            response = await self._taken_up(reading, lost)

    async def _taken_up(self, reading: ResponseReading, lost: McpLost) -> httpx.Response:
        """Return a stream with the events after the last one of a broken stream."""
        # The modern era has no resumption: there the end of a response cancels its request.
        if reading.about is None or version_in(reading.about):
            raise lost
        for _ in range(STREAM_TRIES):
            if self.lost is not None or not reading.parser.last_id:
                break
            await trio.sleep(_pause(reading))
            try:
                response = await self._listen_on(reading)
            except McpLost as error:
                lost = McpLost(f"{lost}; resuming the response failed as well: {error}")
                continue
            if response.status_code == 200 and content_type(response) == EVENTS:
                return response
            refused = await self._refused(response, reading.what)
            raise McpLost(f"{lost}; resuming the response failed as well: {refused}")
        raise lost

    async def _listen_on(self, reading: ResponseReading) -> httpx.Response:
        headers = {**self._headers(""), "accept": EVENTS}
        if reading.parser.last_id:
            headers["last-event-id"] = reading.parser.last_id
        response = await self._web.send("GET", reading.what, headers=headers)
        reading.begin_again()
        return response

    def _linger(self, response: httpx.Response) -> None:
        """Read a stream to its end in the background: the end is expected now."""
        with suppress(ShuttingDown):  # the transport then closes it
            self.own.spawn(self._read_out, response, name="linger", link=False)

    async def _read_out(self, _own: Actor, response: httpx.Response) -> None:
        try:
            with trio.move_on_after(LINGER), suppress(McpError):  # the answer has already arrived
                await self._web.read(response, lambda _piece: False, "nothing")
        finally:
            await response.aclose()

    async def _refused(self, response: httpx.Response, what: str) -> McpError:
        error = await self._web.refused(response, what, session=bool(self._session))
        if isinstance(error, McpUnsent):
            self._lose(error)
        return error

    def _headers(self, method: str, outgoing: OutgoingCall | None = None) -> dict[str, str]:
        headers = {"accept": f"{JSON}, {EVENTS}"}
        version = version_in(outgoing) if outgoing is not None else self.version if self.modern else ""
        if version:
            headers |= {"mcp-protocol-version": version, "mcp-method": method}
            name = outgoing.params.get(_NAMED.get(method, "")) if outgoing is not None else None
            if isinstance(name, str):
                headers["mcp-name"] = header_value(name)
        elif method != "initialize":
            if self.version:
                headers["mcp-protocol-version"] = self.version
            if self._session:
                headers["mcp-session-id"] = self._session
        return headers

    # --- messages without a waiting task

    async def _post(self, method: str, body: bytes) -> None:
        self._check()
        if method == INITIALIZED:
            self.own.spawn(self._listen, name="listen", link=False)
            with trio.move_on_after(HEARD_WITHIN):
                await self._listens.wait()
        what = method or "the response of the client"
        response = await self._web.send("POST", what, headers=self._headers(method), body=body)
        if response.status_code >= 300:
            raise await self._refused(response, what)
        await self._read_out(self.own, response)

    async def _listen(self, _own: Actor) -> None:
        """Receive the server's own messages, if it has a stream for them."""
        reading = ResponseReading(self._web, self._receiver, None)
        in_vain = 0
        while True:
            events = reading.events
            with suppress(McpError):
                try:
                    response = await self._listen_on(reading)
                finally:
                    self._listens.set()
                try:
                    if response.status_code != 200 or content_type(response) != EVENTS:
                        return
                    await self._web.read(response, reading.take, reading.what)
                finally:
                    await response.aclose()
            in_vain = in_vain + 1 if reading.events == events else 0
            await trio.sleep(Backoff(first=_pause(reading), most=MAX_RETRY, jitter=0.0).seconds(in_vain + 1))


def _pause(reading: ResponseReading) -> float:
    retry = reading.parser.retry
    return RETRY if retry is None else min(max(retry, MIN_RETRY), MAX_RETRY)


def _answers(message: Result | ErrorResponse, request: OutgoingCall) -> bool:
    """Return True if a message answers this request.

    Some servers refuse an unreadable request with an id of their own. A response holds no answer to another request.
    """
    id = number(message.id)
    return id == request.id or (isinstance(message, ErrorResponse) and id is None)


_LISTENING = "the event stream"


@asynccontextmanager
async def open_sse(
    me: Actor, server: Server, receiver: Receiver, environ: Mapping[str, str], access: ServerAccess | None = None
) -> AsyncIterator[SseLink]:
    """Yield a link to a server, once its stream is open and has named the endpoint. Waits for that without a limit.

    Args:
        environ: for proxies and certificates, see `TrioTransport`.
        access: tokens for the server.

    Raises:
        ConfigError: the server's address or a header is invalid.
        McpUnsent: the server was not reached.
        McpLost: the stream ended before it named the endpoint.
        McpError: the server refuses the stream, or names an invalid endpoint or one of another origin.
    """
    link = SseLink(HttpServerAccess(server, environ, access), receiver)
    try:
        ref = await me.start(link.live, name="sse")
    except ActorFailed as failed:
        if isinstance(failed.__cause__, McpError):
            raise failed.__cause__ from None
        raise
    try:
        yield link
    finally:
        with me.cleanup():
            link.close()
            ref.cancel()
            await ref.wait()


class _Waiting:
    __slots__ = ("answer", "come")

    def __init__(self) -> None:
        self.come = trio.Event()
        self.answer: Result | ErrorResponse | None = None


class SseLink(WebLink):
    """Link over HTTP with server-sent events; see the module and `link.Link`.

    Attributes:
        stray: number of answers without a request.
    """

    def __init__(self, web: HttpServerAccess, receiver: Receiver) -> None:
        super().__init__(web, receiver)
        self.stray = 0
        self._parser = SseParser(web.server.max_message_bytes)
        self._endpoint: httpx.URL | None = None
        self._waiting: dict[int, _Waiting] = {}

    async def live(self, own: Actor) -> NoReturn:
        """Body of the link's own actor: read the stream, and crash when it ends."""
        self.own = own
        try:
            response = await self._web.send("GET", _LISTENING, headers={"accept": EVENTS})
            if response.status_code != 200:
                raise await self._web.refused(response, _LISTENING)
            try:
                if content_type(response) != EVENTS:
                    raise self._web.unexpected(response, _LISTENING)
                await self._web.read(response, self._take, _LISTENING)
            finally:
                await response.aclose()
            raise McpLost(f"{self._web.who} ended the connection")
        except McpError as error:
            self._lose(error)
            raise

    def close(self) -> None:
        """Close the stream; active requests fail with `McpLost`, later ones with `McpUnsent`."""
        self._lose(McpLost(f"the connection to {self._web.who} was closed"))

    def _lose(self, error: McpError) -> None:
        super()._lose(error)
        for waiting in self._waiting.values():
            waiting.come.set()

    # --- receiving

    def _take(self, data: bytes) -> bool:
        for event in self._parser.feed(data):
            if event.kind == "endpoint" and self._endpoint is None:
                self._endpoint = self._allowed(event)
                self.own.started()
            elif event.kind == "message" and event.data:
                for message in self._web.messages(event.data.encode(), _LISTENING):
                    self._receive(message)
        return False

    def _allowed(self, event: SseEvent) -> httpx.URL:
        """Return the endpoint; it must have the same origin, since the configured headers are sent to it."""
        try:
            url = self._web.url.join(event.data.strip())
            ours = within_origin(self._web.url, url)
        except BAD_URL as error:
            raise McpError(f"{self._web.who} sent an invalid URL to post messages to: {error}") from error
        if not ours:
            raise McpError(
                f"{self._web.who} asks for messages to be posted to "
                f"{url.scheme}://{url.netloc.decode('ascii')}, which is not the origin of its `url` in "
                "mcp.json; its headers must not be sent to another origin"
            )
        return url

    def _receive(self, message: Message) -> None:
        if isinstance(message, Notification):
            self._receiver.on_notification(message, None)
        elif isinstance(message, Request):
            self._receiver.on_request(message, None)
        elif (id := number(message.id)) is not None and (waiting := self._waiting.get(id)) is not None:
            waiting.answer = message
            waiting.come.set()
        else:
            self.stray += 1

    # --- sending

    async def _ask(self, outgoing: OutgoingCall) -> msgspec.Raw:
        # Registered before the POST: the answer may arrive on the stream before the POST returns.
        waiting = self._waiting[outgoing.id] = _Waiting()
        try:
            message = encode_request(outgoing.id, outgoing.method, outgoing.params)
            # Only the POST is limited: the answer may take as long as the call.
            with trio.move_on_after(WITHIN) as scope:
                await self._post(outgoing.method, message, outgoing)
            if scope.cancelled_caught:
                raise McpLost(f"{self._web.who} did not accept {outgoing.method} within {WITHIN:g} s")
            await waiting.come.wait()
        finally:
            del self._waiting[outgoing.id]
        if isinstance(waiting.answer, Result):
            return waiting.answer.result
        if waiting.answer is None:
            raise McpLost(str(self.lost))
        raise refused(self._web.server.name, outgoing, waiting.answer.error)

    async def _post(self, method: str, body: bytes, outgoing: OutgoingCall | None = None) -> None:
        what = method or "the response of the client" if outgoing is None else described(outgoing)
        headers = {"accept": "*/*", **({} if outgoing is None else outgoing.headers)}
        if self.version:
            headers["mcp-protocol-version"] = self.version
        response = await self._web.send(
            "POST", what, url=self._endpoint, headers=headers, body=body, once=method == "tools/call"
        )
        if response.status_code >= 300:
            raise await self._web.refused(response, what)
        await self._web.whole(response, what)
