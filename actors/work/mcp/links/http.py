"""Link over Streamable HTTP, in both eras.

Every request is a POST of its own, sent in the requesting task. Its answer is JSON, or an event stream in which the
server may send other messages first. So no single connection carries all requests. A cancelled request closes its
response, which notifies a server of the modern era. Servers of earlier revisions get `notifications/cancelled`.

Earlier revisions may have more:

- A *session*: its id comes with the answer to `initialize`, is sent with every later request, and is deleted at the
  end. When the server no longer knows it, the link is lost (`McpUnsent`: the request has not been executed).
- A stream for the server's own messages. If the server has one, the client opens it before it sends anything that could
  cause such messages: without a stream the server drops them.
- Streams that can be resumed: after a break the client requests the events after the last one with an id.

Messages without a waiting task (notifications, answers to the server, rests of responses) and the server's own stream
are handled by children of the link's actor. That actor crashes when the link is lost, and its owner with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

import httpx
import msgspec
import trio

from .....protocol.errors import McpError, McpLost, McpUnsent, ShuttingDown
from .....protocol.jsonrpc import ErrorResponse, Message, Notification, Request, Result, encode_request, number
from .....protocol.mcp.config import Server
from .....supervisors import Actor, Backoff
from ....io.http.sse import SseParser
from ..auth.access import ServerAccess
from .link import OutgoingCall, Receiver
from .mirrored import header_value
from .texts import described, refused
from .web import EVENTS, INITIALIZED, JSON, HttpServerAccess, WebLink, content_type, version_in

DELETE_WITHIN = 1.0

LINGER = 1.0
"""Seconds for a stream to end after its answer, so that its connection can be reused."""

HEARD_WITHIN = 2.0
"""Seconds for a server to answer whether it has a stream for its own messages."""

RETRY = 1.0
"""Seconds before a stream is resumed if the server names no interval."""

MIN_RETRY, MAX_RETRY = 0.1, 60.0
TRIES = 5
"""Failed requests in a row for a stream at most."""

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
            raise McpError(f"{self._web.who} answered {self.what} with messages that contain no answer to it")
        assert self.about is not None, "only a request is answered"
        raise refused(self._web.server.name, self.about, self.answer.error)

    def begin_again(self) -> None:
        """Prepare for the bytes of a response that resumes a broken one."""
        old, self.parser = self.parser, SseParser(self._web.server.max_message_bytes)
        self.parser.last_id, self.parser.retry = old.last_id, old.retry

    def take(self, data: bytes) -> bool:
        """Process the next bytes of an event stream. Return True if they complete the answer."""
        for event in self.parser.feed(data):
            self.events += 1
            if event.kind == "message" and event.data:
                self.take_messages(event.data.encode())
                if self.answer is not None:
                    return True
        return False

    def take_messages(self, data: bytes) -> None:
        """Process a body with one message or several."""
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
        """Body of the link's own actor: wait until the link is lost, then crash."""
        self.own = own
        own.started()
        await self._gone.wait()
        assert self.lost is not None
        raise self.lost

    async def close(self) -> None:
        """End the session on the server, if there is one, and close all connections."""
        if self._session and self.lost is None:
            with trio.move_on_after(DELETE_WITHIN), suppress(McpError):  # the server also ends unused sessions itself
                response = await self._web.send("DELETE", "the end of the session", headers=self._headers(""))
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
                lost = McpLost(f"{self._web.who} ended its answer to {reading.what} before there was a result")
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
        for _ in range(TRIES):
            if self.lost is not None or not reading.parser.last_id:
                break
            await trio.sleep(_pause(reading))
            try:
                response = await self._listen_on(reading)
            except McpLost as error:
                lost = McpLost(f"{lost}; resuming its answer failed as well: {error}")
                continue
            if response.status_code == 200 and content_type(response) == EVENTS:
                return response
            refused = await self._refused(response, reading.what)
            raise McpLost(f"{lost}; resuming its answer failed as well: {refused}")
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
        what = method or "the client's answer"
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
