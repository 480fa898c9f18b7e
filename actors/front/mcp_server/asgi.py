"""HTTP side of the protocol (Streamable HTTP) as an ASGI application.

One message is one POST to `/mcp`. The answer is JSON if it is available at once, and otherwise an event stream that
ends with it. In the newer era that is all, and headers repeat values of the body, so that proxies can route by them. In
the older one `initialize` opens a session, which the client names in a header from then on and ends with DELETE.

A stream that the client closes cancels the run, in both eras: a result that no client can fetch is not stored. There is
no stream for messages without a request (GET), because the server sends none.

Web pages must not get access through a user's browser. `Origin` is always checked, and `Host` if the server listens
only on the loopback interface, against DNS rebinding.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections import OrderedDict
from typing import Any, Never, TypeAlias

import msgspec
import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....protocol.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    ErrorResponse,
    Id,
    Message,
    Notification,
    Request,
    Result,
    decode,
    encode_failure,
)
from ....protocol.mcp.model import HANDSHAKE, HEADER_MISMATCH, MODERN, UNSUPPORTED_VERSION
from ....protocol.settings.api import LOOPBACK
from ....supervisors import Ref
from ...io.http import sse
from ...io.http.headers import joined
from ...io.peer import Refusal
from ..access.origins import host_of
from ..http.streams import while_there
from .service import Service
from .session import McpSession, ReplyChannel, params_of, version_named

Headers = dict[str, str]
_Streamed: TypeAlias = "tuple[_Pieces, Ref[Never, None]]"
"""Pieces to send, and the actor that produces them."""

PATH = "/mcp"
MAX_BODY = 4 * 1024 * 1024
MAX_SESSIONS = 1_000
SESSION_TTL = 1_800.0
"""Seconds after which an unused session may be forgotten."""

BEHIND = 1_000
"""Messages that may wait for a slow client before progress is dropped."""

STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""Statuses of errors in the newer era; in the older one, and for all others, it is 200."""


class StatusReply(Exception):
    """Final reply: a status, and optionally JSON. Raised to abort a request."""

    def __init__(self, status: int, body: bytes = b"", headers: Headers | None = None) -> None:
        super().__init__(status)
        self.response = Response(body, status, headers, "application/json")


class App:
    """ASGI application of the MCP server.

    Args:
        token: required token of clients, in `Authorization: Bearer`; None for none.
        only_loopback: True if `Host` must be one of this machine's own names.
        origins: web origins that may call the server, in addition to this machine's own.
    """

    def __init__(
        self, service: Service, *, token: str | None = None, only_loopback: bool = True, origins: tuple[str, ...] = ()
    ) -> None:
        self._service = service
        self._token = token
        self._only_loopback = only_loopback
        self._origins = origins
        self._sessions: OrderedDict[str, tuple[McpSession, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as an ASGI application; there are no lifespan events."""
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        try:
            answer = await self._answer(scope, receive)
        except StatusReply as refused:
            answer = refused
        if isinstance(answer, StatusReply):
            await answer.response(scope, receive, send)
        else:
            await _stream(*answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> StatusReply | _Streamed:
        headers = joined(scope["headers"])
        self._admit(scope["path"], headers)
        if scope["method"] == "DELETE":
            self._session(headers).close()
            del self._sessions[headers["mcp-session-id"]]
            return StatusReply(204)
        _check_post(scope["method"], headers)
        message = _message(await _body(receive))
        if not isinstance(message, Request):
            return await self._take(message, headers)
        modern, more, pieces = True, Headers(), _Pieces()
        try:
            version = version_named(params_of(message))
            modern = version is not None or headers.get("mcp-protocol-version") == MODERN
            if modern:
                _check_headers(message, version, headers)
                session = McpSession(self._service, pieces.put)
            elif message.method == "initialize":
                session, more = self._new_session()
            elif headers.get("mcp-protocol-version", HANDSHAKE[0]) not in HANDSHAKE:
                raise StatusReply(400, b'{"error":"this MCP-Protocol-Version is not spoken here"}')
            else:
                session = self._session(headers)
        except Refusal as refusal:
            raise _refused(refusal, STATUS.get(refusal.code, 200) if modern else 200, message.id) from None
        ref = await session.take(message, ReplyChannel(pieces.put, pieces.answer))
        if ref is not None:
            ref.on_end(lambda _: pieces.end())  # it may have no answer
            return pieces, ref
        (body,) = pieces.waiting
        answer = decode(body)
        code = answer.error.code if modern and isinstance(answer, ErrorResponse) else 0
        return StatusReply(STATUS.get(code, 200), body, more)

    def _admit(self, path: str, headers: Headers) -> None:
        if path.rstrip("/") != PATH:
            raise StatusReply(404)
        if self._only_loopback and host_of(headers.get("host", "")) not in LOOPBACK:
            raise StatusReply(421, b'{"error":"this server answers to the names of its own machine only"}')
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins and host_of(origin.partition("://")[2]) not in LOOPBACK:
            raise StatusReply(403, b'{"error":"this origin is not allowed"}')
        if self._token is not None:
            scheme, _, shown = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not secrets.compare_digest(shown.encode(), self._token.encode()):
                raise StatusReply(401, b'{"error":"a bearer token is needed"}', {"www-authenticate": "Bearer"})

    async def _take(self, message: Notification | Result | ErrorResponse, headers: Headers) -> StatusReply:
        if headers.get("mcp-protocol-version") != MODERN:  # in the newer era such messages have no effect
            await self._session(headers).take(message)
        return StatusReply(202)

    # --- sessions -------------------------------------------------------------------------------------------

    def _new_session(self) -> tuple[McpSession, Headers]:
        for id, (session, used) in list(self._sessions.items()):
            too_old = used + SESSION_TTL < trio.current_time()
            if session.idle and (too_old or len(self._sessions) >= MAX_SESSIONS):
                del self._sessions[id]
        if len(self._sessions) >= MAX_SESSIONS:
            raise StatusReply(503, b'{"error":"too many sessions are at work; try again later"}')
        session, id = McpSession(self._service, lambda *_, **__: None), secrets.token_hex(16)
        self._sessions[id] = session, trio.current_time()
        return session, {"mcp-session-id": id}

    def _session(self, headers: Headers) -> McpSession:
        id = headers.get("mcp-session-id")
        if id is None:
            raise StatusReply(400, b'{"error":"begin with initialize, then name the session in Mcp-Session-Id"}')
        if id not in self._sessions:
            raise StatusReply(404, b'{"error":"this session has ended; begin with initialize again"}')
        session, _ = self._sessions.pop(id)
        self._sessions[id] = session, trio.current_time()
        return session


# --- requests ------------------------------------------------------------------------------------------------


def _check_post(method: str, headers: Headers) -> None:
    if method != "POST":
        raise StatusReply(405, headers={"allow": "POST, DELETE"})
    if not headers.get("content-type", "").lower().startswith("application/json"):
        raise StatusReply(415, b'{"error":"the body must be application/json"}')
    accepted = headers.get("accept", "*/*")
    if "*/*" not in accepted and not ("application/json" in accepted and "text/event-stream" in accepted):
        raise StatusReply(406, b'{"error":"accept both application/json and text/event-stream"}')


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise StatusReply(400)  # the client has disconnected
        body += event.get("body", b"")
        if len(body) > MAX_BODY:
            raise StatusReply(413, b'{"error":"a message has at most %d bytes"}' % MAX_BODY, {"connection": "close"})
        if not event.get("more_body"):
            return bytes(body)


def _message(body: bytes) -> Message:
    try:
        return decode(body)
    except (ValueError, RecursionError) as error:
        try:
            msgspec.json.decode(body)
        except (ValueError, RecursionError):
            raise _refused(Refusal(PARSE_ERROR, f"the body is not JSON: {error}"), 400) from None
        raise _refused(Refusal(INVALID_REQUEST, f"the body must be one JSON-RPC message: {error}"), 400) from None


def _refused(refusal: Refusal, status: int, id: Id | None = None) -> StatusReply:
    return StatusReply(status, encode_failure(id, refusal.code, str(refusal), refusal.data))


def _check_headers(request: Request, version: Any, headers: Headers) -> None:
    """Raise `Refusal` if the headers contradict the body."""
    body = {"mcp-protocol-version": version, "mcp-method": request.method}
    if request.method == "tools/call":
        body["mcp-name"] = params_of(request).get("name")
    for name, value in body.items():
        if value is None and name == "mcp-protocol-version":
            continue  # `McpSession.begin` reports the missing version
        if _decoded(headers.get(name)) != value:
            raise Refusal(HEADER_MISMATCH, f"the header {name} differs from the value in the body")


def _decoded(value: str | None) -> str | None:
    """Decode a header; text that is not ASCII is encoded as `=?base64?...?=`."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


# --- answers -------------------------------------------------------------------------------------------------


class _Pieces:
    """Queue of messages for a request."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self._news = trio.Event()
        self.over = False

    def put(self, message: bytes, /, *, droppable: bool = False) -> None:
        if not (droppable and len(self.waiting) >= BEHIND):
            self.waiting.append(message)
            self._news.set()

    def answer(self, message: bytes) -> None:
        """Queue the last message, and end the queue."""
        self.waiting.append(message)
        self.end()

    def end(self) -> None:
        """End the queue; `take` returns what it still contains."""
        self.over = True
        self._news.set()

    async def take(self) -> list[bytes]:
        """Wait for messages and return all; an empty list at the end, or after `sse.PING_EVERY` seconds without one."""
        with trio.move_on_after(sse.PING_EVERY):
            await self._news.wait()
        self._news = trio.Event()
        taken, self.waiting = self.waiting, []
        return taken


async def _stream(pieces: _Pieces, ref: Ref[Never, None], scope: Scope, receive: Receive, send: Send) -> None:
    """Reply with JSON if only the answer is to be sent, else with a stream."""

    async def answer() -> Response | None:
        started = over = False
        while not over:
            said = await pieces.take()
            over = pieces.over
            # The protocol allows a reply as JSON or as a stream; a stream would be an envelope for a single message.
            if over and not started and len(said) <= 1:
                return StatusReply(200, said[0]).response if said else StatusReply(202).response
            if not started:
                headers = [(name.encode(), value.encode()) for name, value in sse.HEADERS.items()]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                started = True
            body = b"".join(sse.event(message, name="message") for message in said)
            await send({"type": "http.response.body", "body": body or sse.PING, "more_body": not over})
        return None

    try:
        reply = await while_there(receive, answer)
    finally:
        ref.cancel()
    if reply is not None:
        await reply(scope, receive, send)
