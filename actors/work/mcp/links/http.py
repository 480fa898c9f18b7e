"""A link over Streamable HTTP, in both eras.

Every request is a POST of its own, made in the task that asks; its answer is JSON, or a stream of events in which the
server may say other things first. So there is no connection that could break for all at once, and a cancelled
request closes its response: that is how a server of the modern era learns of it. Servers of earlier revisions get
`notifications/cancelled`.

Earlier revisions may have more:

- a *session*: its id comes with the answer to `initialize`, goes with every request from then on, and is deleted at the
  end. When the server has forgotten it, the link is lost (`McpUnsent`: what was asked for has not been begun);
- a stream of what the server wants to say outside of answers. It is listened to, if the server has one, before anything
  is said that the server might have to say something about: what it has no stream for, it drops;
- streams that can be taken up again: one that breaks after an event with an id is asked for what comes behind it.

What goes out without a waiting task (notifications, answers to the server, goodbyes to responses) is done by
children of the link's own actor, and so is the listening. That actor crashes when the link is lost, and its owner with
it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

import httpx
import msgspec
import trio

from .....protocol.errors import McpError, McpLost, McpUnsent, ShuttingDown
from .....protocol.jsonrpc import Failure, Message, Notification, Request, Result, encode_request, number
from .....protocol.mcp.config import Server
from .....supervisors import Actor, Backoff
from ....io.http.sse import SseParser
from ..auth.access import Access
from .link import Outgoing, Receiver
from .mirrored import header_value
from .texts import described, refused
from .web import EVENTS, INITIALIZED, JSON, Web, WebLink, content_type, version_in

DELETE_WITHIN = 1.0

LINGER = 1.0
"""Seconds for a stream to end after its answer, so that its connection can be used again."""

HEARD_WITHIN = 2.0
"""Seconds for a server to say whether it has a stream for what belongs to no request."""

RETRY = 1.0
"""Seconds before a stream is taken up again, where the server names none."""

MIN_RETRY, MAX_RETRY = 0.1, 60.0
TRIES = 5
"""Times in a row that a stream is asked for in vain."""

_NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}


@asynccontextmanager
async def open_http(
    me: Actor, server: Server, receiver: Receiver, environ: Mapping[str, str], access: Access | None = None
) -> AsyncIterator[HttpLink]:
    """A link to a server. Nothing is sent yet, so a server that is not there shows with the first request.

    Args:
        environ: for proxies and certificates, see `TrioTransport`.
        access: the tokens for it.

    Raises:
        ConfigError: the server's address or its headers can't be used.
    """
    link = HttpLink(Web(server, environ, access), receiver)
    ref = await me.start(link.live, name="http")
    try:
        yield link
    finally:
        with me.cleanup():
            await link.close()
            ref.cancel()
            await ref.wait()


class Reading:
    """Hands on the messages of a response until its answer is among them.

    Attributes:
        about: the request that it answers; None for a stream that answers none.
        events: how many there were.
        answer: once it has come.
    """

    def __init__(self, web: Web, receiver: Receiver, about: Outgoing | None) -> None:
        self.about = about
        self.what = "listening" if about is None else described(about)
        self.events = 0
        self.parser = SseParser(web.server.max_message_bytes)
        self._web = web
        self._receiver = receiver
        self.answer: Result | Failure | None = None

    def result(self) -> msgspec.Raw:
        """The answer.

        Raises:
            McpError: it is a refusal, or there is none.
        """
        if isinstance(self.answer, Result):
            return self.answer.result
        if self.answer is None:
            raise McpError(f"{self._web.who} answered {self.what} with messages that hold no answer to it")
        assert self.about is not None, "only a request is answered"
        raise refused(self._web.server.name, self.about, self.answer.error)

    def begin_again(self) -> None:
        """The next bytes are of another response that goes on where this one broke."""
        old, self.parser = self.parser, SseParser(self._web.server.max_message_bytes)
        self.parser.last_id, self.parser.retry = old.last_id, old.retry

    def take(self, data: bytes) -> bool:
        """The next bytes of an event stream. Whether the answer was among them."""
        for event in self.parser.feed(data):
            self.events += 1
            if event.kind == "message" and event.data:
                self.take_messages(event.data.encode())
                if self.answer is not None:
                    return True
        return False

    def take_messages(self, data: bytes) -> None:
        """A message, or several."""
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
    """See the module, and `link.Link`."""

    def __init__(self, web: Web, receiver: Receiver) -> None:
        super().__init__(web, receiver)
        self._session = ""
        self._gone = trio.Event()
        self._listens = trio.Event()

    async def live(self, own: Actor) -> NoReturn:
        """The body of the link's own actor."""
        self.own = own
        own.started()
        await self._gone.wait()
        assert self.lost is not None
        raise self.lost

    async def close(self) -> None:
        """Tell the server that the session is over, if there is one, and close everything."""
        if self._session and self.lost is None:
            with trio.move_on_after(DELETE_WITHIN), suppress(McpError):  # it would find out by itself
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

    async def _ask(self, outgoing: Outgoing) -> msgspec.Raw:
        method, what = outgoing.method, described(outgoing)
        response = await self._web.send(
            "POST",
            what,
            headers={**self._headers(method, outgoing), **outgoing.headers},
            body=encode_request(outgoing.id, method, outgoing.params),
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
        reading = Reading(self._web, self._receiver, outgoing)
        if kind == EVENTS:
            await self._until_answered(response, reading)
        else:
            reading.take_messages(await self._web.whole(response, what))
        return reading.result()

    async def _until_answered(self, response: httpx.Response, reading: Reading) -> None:
        """Read a stream, and what it is continued by, until the answer has come."""
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

    async def _taken_up(self, reading: Reading, lost: McpLost) -> httpx.Response:
        """A stream of what comes behind the last event of one that broke."""
        if reading.about is None or version_in(reading.about):
            raise lost
        for _ in range(TRIES):
            if self.lost is not None or not reading.parser.last_id:
                break
            await trio.sleep(_pause(reading))
            try:
                response = await self._listen_on(reading)
            except McpLost as error:
                lost = McpLost(f"{lost}; taking up its answer again failed as well: {error}")
                continue
            if response.status_code == 200 and content_type(response) == EVENTS:
                return response
            refused = await self._refused(response, reading.what)
            raise McpLost(f"{lost}; taking up its answer again failed as well: {refused}")
        raise lost

    async def _listen_on(self, reading: Reading) -> httpx.Response:
        headers = {**self._headers(""), "accept": EVENTS}
        if reading.parser.last_id:
            headers["last-event-id"] = reading.parser.last_id
        response = await self._web.send("GET", reading.what, headers=headers)
        reading.begin_again()
        return response

    def _linger(self, response: httpx.Response) -> None:
        """Have a stream read to its end, which is due now."""
        with suppress(ShuttingDown):  # the transport closes it then
            self.own.spawn(self._read_out, response, name="linger", link=False)

    async def _read_out(self, _own: Actor, response: httpx.Response) -> None:
        try:
            with trio.move_on_after(LINGER), suppress(McpError):  # what matters has come
                await self._web.read(response, lambda _piece: False, "nothing")
        finally:
            await response.aclose()

    async def _refused(self, response: httpx.Response, what: str) -> McpError:
        error = await self._web.refused(response, what, session=bool(self._session))
        if isinstance(error, McpUnsent):
            self._lose(error)
        return error

    def _headers(self, method: str, outgoing: Outgoing | None = None) -> dict[str, str]:
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

    # --- what no task waits for

    async def _post(self, method: str, body: bytes) -> None:
        self._check()
        if method == INITIALIZED:
            self.own.spawn(self._listen, name="listen", link=False)
            with trio.move_on_after(HEARD_WITHIN):
                await self._listens.wait()
        what = method or "an answer of ours"
        response = await self._web.send("POST", what, headers=self._headers(method), body=body)
        if response.status_code >= 300:
            raise await self._refused(response, what)
        await self._read_out(self.own, response)

    async def _listen(self, _own: Actor) -> None:
        """Hear what the server says outside of answers, if it has a stream for that."""
        reading = Reading(self._web, self._receiver, None)
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


def _pause(reading: Reading) -> float:
    retry = reading.parser.retry
    return RETRY if retry is None else min(max(retry, MIN_RETRY), MAX_RETRY)


def _answers(message: Result | Failure, request: Outgoing) -> bool:
    """Some servers refuse what they could not read under an id of their own; a response holds no other's answer."""
    id = number(message.id)
    return id == request.id or (isinstance(message, Failure) and id is None)
