"""ASGI application: `routes` behind starlette's router, one mapping of all errors, and the middleware.

Three nested layers are around the application (`guarded`). `Frame` gives every request an id and every reply its
headers, and counts both; `Admission` admits callers; `RequestBounds` limits bodies and time. An endpoint reads
`request.state.caller` and `request.state.request_id`.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Union, final, get_args, get_type_hints

import msgspec
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ....protocol.control.caller import Caller
from ....protocol.control.errors import error_for_client
from ....protocol.decoding import convert, decode_json
from ....protocol.errors import CallboardError, NotFound, Unauthorized, UsageError
from ...io.http.headers import joined
from ...io.server_log import about
from ...runs.trace_context import continue_trace
from ..access.access_control import AccessControl
from .call import CODES, Api, BodyTooSlow, HttpCall, HttpRoute, Watched, WrongMedia, error_reply, refusal
from .routes import RouteMatch, find_route, routes, templates_at

if TYPE_CHECKING:
    from ..metrics import Metrics


log = logging.getLogger("callboard.http")

JSON_TYPES = ("", "application/json", "application/x-www-form-urlencoded")
"""Body types that are parsed as JSON; the last is curl's default for everything."""

BODY_WITHIN = 30.0
"""Seconds that a client has to send a body."""

GONE = 499
"""Status for a client that has disconnected (nginx's)."""


def make_app(api: Api) -> ASGIApp:
    """Return the application, without checks of callers (see `guarded`)."""
    by_path: dict[str, dict[str, HttpRoute]] = {}
    for route in routes():
        by_path.setdefault(route.path, {})[route.method] = route
    paths = [Path(path, endpoint=_Endpoint(api, by_method)) for path, by_method in by_path.items()]
    return Starlette(routes=paths, exception_handlers={HTTPException: _refused_by_starlette})


class _Endpoint:
    """Endpoint of one path with all its methods."""

    def __init__(self, api: Api, by_method: dict[str, HttpRoute]) -> None:
        self._api = api
        self._by_method = by_method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        continue_trace(request.headers)
        call = HttpCall(self._api, request)
        watched = Watched(send)
        try:
            answer = await self._answer(call)
            await answer(scope, receive, watched)
        except CallboardError as error:
            caller = scope["state"].get("caller")  # public routes have none
            shown = error if caller is None else error_for_client(caller, error)
            await self._send_error(watched, refusal(shown, call.id), scope, receive)
        # The client is gone. The status is for the log line and the metrics (`Frame`).
        except ClientDisconnect:
            await self._send_error(watched, Response(status_code=GONE), scope, receive)
        except Exception:  # clients must not see internals
            log.exception("%s %s crashed (request %s)", request.method, request.url.path, call.id)
            text = f"the server failed with an internal error; its log has more under request {call.id}"
            await self._send_error(watched, error_reply(500, "internal", text, call.id), scope, receive)

    async def _send_error(self, watched: Watched, response: Response, scope: Scope, receive: Receive) -> None:
        if watched.status is None:
            await response(scope, receive, watched)

    async def _answer(self, call: HttpCall) -> ASGIApp:
        method = call.request.method
        route = self._by_method.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(_allowed(self._by_method))
            text = f"this path does not support {method}; it supports {allowed}"
            return error_reply(405, CODES[405], text, call.id, {"allow": allowed})
        given = []
        if route.query is not None:
            given.append(_query(call.request, route.query))
        if route.body is not None:
            given.append(await _body(call.request, route))
        return await route.handler(call, *given)


def _allowed(by_method: Iterable[str]) -> list[str]:
    names = set(by_method)
    return sorted(names | {"HEAD"} if "GET" in names else names)


def _query(request: Request, kind: type) -> object:
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    given = dict(request.query_params)
    if strange := [name for name in given if name not in names]:
        raise UsageError(f"unknown query parameter '{strange[0][:60]}'; expected {', '.join(names)}")
    values = {}
    for name, text in given.items():
        try:
            values[name] = convert(text, _query_types(kind)[name], strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"the query's {name}: {error}") from None
    return kind(**values)


@cache
def _query_types(kind: type) -> dict[str, Any]:
    """Return the types of a query's fields without None, which a query can't express: `null` is an ordinary word."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: Union[tuple(each for each in get_args(hint) if each is not NoneType)]  # noqa: UP007 - of a variable
        if NoneType in get_args(hint)
        else hint
        for name, hint in hints.items()
    }


async def _body(request: Request, route: HttpRoute) -> object:
    assert route.body is not None
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in JSON_TYPES:
        raise WrongMedia(f"the body must be application/json, not {media}")
    body = b""
    with trio.move_on_after(BODY_WITHIN) as waiting:
        body = await request.body()
    if waiting.cancelled_caught:
        raise BodyTooSlow(f"the body was not complete within {BODY_WITHIN:g} s")
    if not body and route.optional_body:
        body = b"{}"
    try:
        return decode_json(body, route.body)
    except msgspec.ValidationError as error:
        raise UsageError(f"the body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the body is not JSON: {error}") from None


async def _refused_by_starlette(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = CODES.get(error.status_code, "http")
    text = f"nothing is served at {request.url.path}" if error.status_code == 404 else error.detail
    id = getattr(request.state, "request_id", "")
    return error_reply(error.status_code, code, text, id, dict(error.headers or {}))


request_log = logging.getLogger("callboard.server.requests")

SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"strict-origin-when-cross-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers of every reply, unless it sets them itself."""

HSTS = (b"strict-transport-security", b"max-age=31536000; includeSubDomains")
QUIET = ("/healthz/live", "/healthz/ready", "/metrics")
"""Frequently polled routes, which are not logged."""

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
CORS_METHODS = "GET, POST, PUT, DELETE, OPTIONS"
CORS_HEADERS = "authorization, content-type, last-event-id, x-request-id"
CORS_EXPOSED = b"x-request-id, retry-after"
PREFLIGHT_FOR = "600"
"""Seconds for which browsers cache a preflight reply."""


def guarded(app: ASGIApp, access: AccessControl, *, metrics: Metrics | None = None) -> ASGIApp:
    """Return the HTTP application with admission, limits, ids and metrics around it."""
    settings = access.settings
    bounded = RequestBounds(app, max_body=settings.limits.max_body_bytes, timeout=settings.request_timeout_seconds)
    framed = Frame(Admission(bounded, access), force_https=settings.force_https, metrics=metrics)

    async def layers(scope: Scope, receive: Receive, send: Send) -> None:
        await (framed if scope["type"] == "http" else app)(scope, receive, send)

    return layers


@final
class Frame:
    """Outermost layer: ids, headers, metrics, and one log line per request.

    Args:
        force_https: True tells browsers to use only https.
    """

    def __init__(self, app: ASGIApp, *, force_https: bool = False, metrics: Metrics | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._headers = (*SECURITY, HSTS) if force_https else SECURITY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as an ASGI application."""
        id = _request_id(scope)
        scope = {**scope, "state": {**scope.get("state", {}), "request_id": id}}
        status = GONE
        headers = self._headers

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                # Known only when the reply begins; a request whose client leaves before that is logged as `GONE`.
                status = message["status"]
                message = {**message, "headers": _completed(message.get("headers", ()), id, headers)}
            await send(message)

        began = trio.current_time()
        if self._metrics is not None:
            self._metrics.request_began()
        try:
            with about(request_id=id):
                try:
                    await self._app(scope, receive, framed)
                finally:
                    self._log_request(scope, status, trio.current_time() - began)
        finally:
            if self._metrics is not None:
                # Clients choose methods and paths freely: unknown ones share a label, which bounds the time series.
                method = scope["method"] if scope["method"] in _METHODS else "other"
                found = find_route(scope["method"], scope["path"])
                template = "other" if found is None else found.template
                self._metrics.request_ended(method, template, status, trio.current_time() - began)

    def _log_request(self, scope: Scope, status: int, seconds: float) -> None:
        if request_log.isEnabledFor(logging.INFO) and scope["path"] not in QUIET:
            caller = scope["state"].get("caller")
            fields = {"status": status, "seconds": round(seconds, 4), "method": scope["method"]}
            if caller is not None:
                fields["subject"] = caller.subject
            request_log.info("%s %s", scope["method"], scope["path"][:300], extra=fields)


def _request_id(scope: Scope) -> str:
    """Return the client's own id, if it is valid, or else a new one."""
    # Only an id of harmless characters, because it is repeated in a header and in the log.
    for name, value in scope["headers"]:
        if name.lower() == b"x-request-id" and _ID.fullmatch(given := value.decode("latin-1")):
            return str(given)
    return str(uuid.uuid4())


def _completed(given: object, id: str, headers: tuple[tuple[bytes, bytes], ...]) -> list[tuple[bytes, bytes]]:
    """Return a reply's headers with the common ones, and without headers that reveal internals."""
    assert isinstance(given, list | tuple)
    kept = [(bytes(name).lower(), bytes(value)) for name, value in given]
    kept = [(name, value) for name, value in kept if name not in (b"server", b"x-request-id")]
    # A header that the handler has set takes precedence over the common one.
    names = {name for name, _ in kept}
    return [*kept, (b"x-request-id", id.encode()), *(header for header in headers if header[0] not in names)]


@final
class Admission:
    """Admission of callers: host and origin, key, scopes, limits; and CORS, for pages of other origins.

    A caller is refused before the body is read.
    """

    def __init__(self, app: ASGIApp, access: AccessControl) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as an ASGI application."""
        headers = joined(scope["headers"])
        origin = headers.get("origin")
        if origin is not None and self._access.origins.is_allowed(origin):
            send = _shared(send, origin, credentials=self._access.settings.cors.allow_credentials)
        peer = self._access.peer_of(headers, scope["client"][0] if scope.get("client") else "")
        with about(peer=peer):
            try:
                await self._enter(scope, headers, peer, receive, send)
            except CallboardError as error:
                # `close`: the body was not read, so the connection can serve no further request.
                await refusal(error, scope["state"]["request_id"], close=True)(scope, receive, send)

    async def _enter(self, scope: Scope, headers: dict[str, str], peer: str, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        # Health checks come before the check of `Host`: probes address the server by IP address.
        found = find_route(method, path)
        if found is not None and path.startswith("/healthz/"):
            await self._app(scope, receive, send)
            return
        # A preflight request never carries a key (Fetch standard), so it is answered before authentication.
        if method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
            self._access.check_origin(headers, peer)
            allowed = {"access-control-allow-methods": CORS_METHODS, "access-control-allow-headers": CORS_HEADERS}
            allowed["access-control-max-age"] = PREFLIGHT_FOR
            await Response(status_code=204, headers=allowed)(scope, receive, send)
            return
        if found is not None and (found.rule.open or (path == "/metrics" and self._access.settings.metrics_public)):
            self._access.check_origin(headers, peer)
            await self._app(scope, receive, send)
            return
        caller = await self._access.authenticate(headers, peer)
        scope["state"]["caller"] = caller
        with about(subject=caller.subject):
            self._may(caller, found, path)
            async with self._access.slot(caller):
                await self._served(scope, caller, found, receive, send)

    def _may(self, caller: Caller, found: RouteMatch | None, path: str) -> None:
        if found is not None:
            self._access.authorize(caller, found.rule)
        # A path that exists with other methods passes, because the endpoint replies with 405.
        elif not caller.has("*") and next(templates_at(path), None) is None:
            raise NotFound(f"nothing is served at {path}")

    async def _served(
        self, scope: Scope, caller: Caller, found: RouteMatch | None, receive: Receive, send: Send
    ) -> None:
        """Serve the request. If the caller's key is revoked before a reply, the request is cancelled."""
        watched = Watched(self._access.paths.over_http(caller, send))
        with self._access.request(caller) as lasting:
            try:
                await self._app(scope, receive, watched)
            finally:
                if found is not None and found.rule.action is not None:
                    # Without a status, the handler failed before its reply began.
                    status = watched.status or 500
                    self._access.audit.log(
                        found.rule.action,
                        "success" if status < 400 else "denied" if status in (401, 403, 429) else "error",
                        caller=caller,
                        target=found.target,
                        reason=None if status < 400 else f"status {status}",
                        details={"method": scope["method"], "route": found.template},
                    )
        if lasting.cancelled_caught and watched.status is None:
            raise Unauthorized("this API key was revoked")


def _shared(send: Send, origin: str, *, credentials: bool) -> Send:
    """Wrap `send` with headers that allow pages of this origin to read the reply."""
    more = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", CORS_EXPOSED),
        # A cache must not give this reply to pages of other origins.
        (b"vary", b"origin"),
    ]
    if credentials:
        more.append((b"access-control-allow-credentials", b"true"))

    async def shared(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return shared


@final
class RequestBounds:
    """Limits of a request's body and time; for an event stream the time until its beginning.

    Args:
        max_body: bytes.
        timeout: seconds until the reply is complete, or until an event stream has begun.
    """

    def __init__(self, app: ASGIApp, *, max_body: int, timeout: float) -> None:
        self._app = app
        self._max = max_body
        self._timeout = timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request as an ASGI application."""
        bounded = _Bounded(self._max, receive, send)
        if not bounded.announced_too_much(scope):
            with trio.move_on_after(self._timeout) as bounded.scope:
                await self._app(scope, bounded.receive, bounded.send)
        id = scope["state"]["request_id"]
        headers = {"connection": "close"}
        if bounded.too_much and not bounded.begun:
            text = f"a body may have at most {self._max} bytes"
            await error_reply(413, "too_large", text, id, headers)(scope, receive, send)
        elif bounded.scope.cancelled_caught and not bounded.begun:
            text = f"the request took more than {self._timeout:g} s and was cancelled"
            await error_reply(504, "timeout", text, id, headers)(scope, receive, send)


class _Bounded:
    """Channels of one request.

    Attributes:
        begun: True if a reply has begun.
        too_much: True if the body exceeds the limit; the application's output is then discarded.
    """

    def __init__(self, most: int, receive: Receive, send: Send) -> None:
        self.begun = False
        self.too_much = False
        self.scope = trio.CancelScope()
        self._left = most
        self._receive = receive
        self._send = send

    def announced_too_much(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name.lower() == b"content-length":
                # Python refuses to parse integers of more than 4300 digits: bound the length before `int`.
                self.too_much = not value.isdigit() or len(value) > 18 or int(value) > self._left
        return self.too_much

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0 and not self.begun:
                self.too_much = True
                self.scope.cancel()
                await trio.lowlevel.checkpoint()
        return message

    async def send(self, message: Message) -> None:
        if self.too_much and not self.begun:
            return
        if message["type"] == "http.response.start":
            self.begun = True
            if any(
                bytes(name).lower() == b"content-type" and bytes(value).startswith(b"text/event-stream")
                for name, value in message.get("headers", ())
            ):
                self.scope.deadline = float("inf")  # an event stream lasts as long as its run
        await self._send(message)
