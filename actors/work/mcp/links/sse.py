"""Link over HTTP with server-sent events: the transport of 2024-11-05, which some servers still use exclusively.

A GET opens a stream that lasts as long as the connection. Its first event, `endpoint`, names the address to which
messages are POSTed. All messages of the server arrive on the stream, answers included. When the stream ends, the
connection is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NoReturn

import httpx
import msgspec
import trio

from .....protocol.errors import ActorFailed, McpError, McpLost
from .....protocol.jsonrpc import ErrorResponse, Message, Notification, Request, Result, encode_request, number
from .....protocol.mcp.config import Server
from .....supervisors import Actor
from ....io.http.sse import SseEvent, SseParser
from ..auth.access import ServerAccess
from .link import OutgoingCall, Receiver
from .texts import described, refused
from .web import BAD_URL, EVENTS, WITHIN, HttpServerAccess, WebLink, content_type, within_origin

_LISTENING = "the event stream"


@asynccontextmanager
async def open_sse(
    me: Actor, server: Server, receiver: Receiver, environ: Mapping[str, str], access: ServerAccess | None = None
) -> AsyncIterator[SseLink]:
    """Yield a link to a server that has named its endpoint.

    Args:
        environ: for proxies and certificates, see `TrioTransport`.
        access: tokens for the server.

    Raises:
        ConfigError: the server's address or a header is invalid.
        McpError, McpLost: there is no such stream.
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
        """Close the stream; active requests fail."""
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
            raise McpError(f"{self._web.who} named an invalid URL for messages: {error}") from error
        if not ours:
            raise McpError(
                f"{self._web.who} wants its messages sent to {url.scheme}://{url.netloc.decode('ascii')},"
                " which is not the origin of its `url` in mcp.json; its headers are not for another origin"
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
        what = method or "the client's answer" if outgoing is None else described(outgoing)
        headers = {"accept": "*/*", **({} if outgoing is None else outgoing.headers)}
        if self.version:
            headers["mcp-protocol-version"] = self.version
        response = await self._web.send(
            "POST", what, url=self._endpoint, headers=headers, body=body, once=method == "tools/call"
        )
        if response.status_code >= 300:
            raise await self._web.refused(response, what)
        await self._web.whole(response, what)
