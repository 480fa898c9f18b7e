"""The HTTP side of the protocol (Streamable HTTP) as an ASGI application.

One message is one POST to `/mcp`. A request's answer is JSON where it comes at once, and else a stream of events that
ends with it. In the newer era that is all, and headers repeat what the body says, so that proxies can route by them. In
the older one `initialize` opens a session, which the client names in a header from then on and ends with DELETE.

A stream that the client closes cancels the run, in both eras: a result that no client can fetch is not kept. There is
no stream for messages that belong to no request (GET), since we have none.

Web pages must not get here through a user's browser. `Origin` is checked always, and `Host` where we listen on the
loopback interface only, against DNS rebinding.
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
    Failure,
    Id,
    Message,
    Notification,
    Request,
    Result,
    decode,
    encode_failure,
)
from ....protocol.mcp.model import HANDSHAKE, HEADER_MISMATCH, MODERN, UNSUPPORTED_VERSION
from ....protocol.settings.api_checks import LOOPBACK
from ....supervisors import Ref
from ...io.http import sse
from ...io.http.headers import joined
from ...io.peer import Refusal
from ..access.origins import host_of
from ..http.streams import while_there
from .service import Service
from .session import Session, Way, params_of, version_named

Headers = dict[str, str]
_Streamed: TypeAlias = "tuple[_Pieces, Ref[Never, None]]"
"""What there is to send, and the actor that sends it."""

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
"""The newer era's statuses of errors; in the older one, and for all others, it is 200."""


class Reply(Exception):
    """A status, and a JSON text if there is anything to say. Raised where a request gets no further."""

    def __init__(self, status: int, body: bytes = b"", headers: Headers | None = None) -> None:
        super().__init__(status)
        self.response = Response(body, status, headers, "application/json")


class App:
    """See the module.

    Args:
        token: what clients have to show as `Authorization: Bearer`; None and they need none.
        only_loopback: whether requests must be addressed to this machine by one of its own names.
        origins: web origins that may call us beside those of this machine.
    """

    def __init__(
        self, service: Service, *, token: str | None = None, only_loopback: bool = True, origins: tuple[str, ...] = ()
    ) -> None:
        self._service = service
        self._token = token
        self._only_loopback = only_loopback
        self._origins = origins
        self._sessions: OrderedDict[str, tuple[Session, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application; for requests, since there is nothing to do at the server's start and end."""
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        try:
            answer = await self._answer(scope, receive)
        except Reply as refused:
            answer = refused
        if isinstance(answer, Reply):
            await answer.response(scope, receive, send)
        else:
            await _stream(*answer, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Reply | _Streamed:
        headers = joined(scope["headers"])
        self._admit(scope["path"], headers)
        if scope["method"] == "DELETE":
            self._session(headers).close()
            del self._sessions[headers["mcp-session-id"]]
            return Reply(204)
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
                session = Session(self._service, pieces.put)
            elif message.method == "initialize":
                session, more = self._new_session()
            elif headers.get("mcp-protocol-version", HANDSHAKE[0]) not in HANDSHAKE:
                raise Reply(400, b'{"error":"this MCP-Protocol-Version is not spoken here"}')
            else:
                session = self._session(headers)
        except Refusal as refusal:
            raise _refused(refusal, STATUS.get(refusal.code, 200) if modern else 200, message.id) from None
        ref = await session.take(message, Way(pieces.put, pieces.answer))
        if ref is not None:
            ref.on_end(lambda _: pieces.end())  # it may have no answer
            return pieces, ref
        (body,) = pieces.waiting
        answer = decode(body)
        code = answer.error.code if modern and isinstance(answer, Failure) else 0
        return Reply(STATUS.get(code, 200), body, more)

    def _admit(self, path: str, headers: Headers) -> None:
        if path.rstrip("/") != PATH:
            raise Reply(404)
        if self._only_loopback and host_of(headers.get("host", "")) not in LOOPBACK:
            raise Reply(421, b'{"error":"this server answers to the names of its own machine only"}')
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins and host_of(origin.partition("://")[2]) not in LOOPBACK:
            raise Reply(403, b'{"error":"this origin is not allowed"}')
        if self._token is not None:
            scheme, _, shown = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not secrets.compare_digest(shown.encode(), self._token.encode()):
                raise Reply(401, b'{"error":"a bearer token is needed"}', {"www-authenticate": "Bearer"})

    async def _take(self, message: Notification | Result | Failure, headers: Headers) -> Reply:
        if headers.get("mcp-protocol-version") != MODERN:  # where a client tells us nothing that matters this way
            await self._session(headers).take(message)
        return Reply(202)

    # --- sessions -------------------------------------------------------------------------------------------

    def _new_session(self) -> tuple[Session, Headers]:
        for id, (session, used) in list(self._sessions.items()):
            too_old = used + SESSION_TTL < trio.current_time()
            if session.idle and (too_old or len(self._sessions) >= MAX_SESSIONS):
                del self._sessions[id]
        if len(self._sessions) >= MAX_SESSIONS:
            raise Reply(503, b'{"error":"too many sessions are at work; try again later"}')
        session, id = Session(self._service, lambda *_, **__: None), secrets.token_hex(16)
        self._sessions[id] = session, trio.current_time()
        return session, {"mcp-session-id": id}

    def _session(self, headers: Headers) -> Session:
        id = headers.get("mcp-session-id")
        if id is None:
            raise Reply(400, b'{"error":"begin with initialize, then name the session in Mcp-Session-Id"}')
        if id not in self._sessions:
            raise Reply(404, b'{"error":"this session has ended; begin with initialize again"}')
        session, _ = self._sessions.pop(id)
        self._sessions[id] = session, trio.current_time()
        return session


# --- requests ------------------------------------------------------------------------------------------------


def _check_post(method: str, headers: Headers) -> None:
    if method != "POST":
        raise Reply(405, headers={"allow": "POST, DELETE"})
    if not headers.get("content-type", "").lower().startswith("application/json"):
        raise Reply(415, b'{"error":"the body must be application/json"}')
    accepted = headers.get("accept", "*/*")
    if "*/*" not in accepted and not ("application/json" in accepted and "text/event-stream" in accepted):
        raise Reply(406, b'{"error":"accept both application/json and text/event-stream"}')


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise Reply(400)  # the client has gone
        body += event.get("body", b"")
        if len(body) > MAX_BODY:
            raise Reply(413, b'{"error":"a message has at most %d bytes"}' % MAX_BODY, {"connection": "close"})
        if not event.get("more_body"):
            return bytes(body)


def _message(body: bytes) -> Message:
    try:
        return decode(body)
    except (ValueError, RecursionError) as error:
        try:
            msgspec.json.decode(body)
        except (ValueError, RecursionError):
            raise _refused(Refusal(PARSE_ERROR, f"the body is no JSON: {error}"), 400) from None
        raise _refused(Refusal(INVALID_REQUEST, f"the body must be one JSON-RPC message: {error}"), 400) from None


def _refused(refusal: Refusal, status: int, id: Id | None = None) -> Reply:
    return Reply(status, encode_failure(id, refusal.code, str(refusal), refusal.data))


def _check_headers(request: Request, version: Any, headers: Headers) -> None:
    """Raise `Refusal` where the headers don't say what the body says."""
    body = {"mcp-protocol-version": version, "mcp-method": request.method}
    if request.method == "tools/call":
        body["mcp-name"] = params_of(request).get("name")
    for name, value in body.items():
        if value is None and name == "mcp-protocol-version":
            continue  # `Session.begin` says what is missing
        if _decoded(headers.get(name)) != value:
            raise Refusal(HEADER_MISMATCH, f"the header {name} does not say what the body says")


def _decoded(value: str | None) -> str | None:
    """What a header says; text that is not ASCII comes as `=?base64?...?=`."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


# --- answers -------------------------------------------------------------------------------------------------


class _Pieces:
    """What a request's actor has to send, until it is sent."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self._news = trio.Event()
        self.over = False

    def put(self, message: bytes, /, *, droppable: bool = False) -> None:
        if not (droppable and len(self.waiting) >= BEHIND):
            self.waiting.append(message)
            self._news.set()

    def answer(self, message: bytes) -> None:
        """The last that there is to send."""
        self.waiting.append(message)
        self.end()

    def end(self) -> None:
        """Nothing more comes."""
        self.over = True
        self._news.set()

    async def take(self) -> list[bytes]:
        """What there is to send; nothing after a long silence."""
        with trio.move_on_after(sse.PING_EVERY):
            await self._news.wait()
        self._news = trio.Event()
        taken, self.waiting = self.waiting, []
        return taken


async def _stream(pieces: _Pieces, ref: Ref[Never, None], scope: Scope, receive: Receive, send: Send) -> None:
    """Reply with JSON if there is nothing to send before the answer, else with a stream."""

    async def tell() -> Response | None:
        started = over = False
        while not over:
            said = await pieces.take()
            over = pieces.over
            if over and not started and len(said) <= 1:
                return Reply(200, said[0]).response if said else Reply(202).response
            if not started:
                headers = [(name.encode(), value.encode()) for name, value in sse.HEADERS.items()]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                started = True
            body = b"".join(sse.event(message, name="message") for message in said)
            await send({"type": "http.response.body", "body": body or sse.PING, "more_body": not over})
        return None

    try:
        reply = await while_there(receive, tell)
    finally:
        ref.cancel()
    if reply is not None:
        await reply(scope, receive, send)
