"""HTTP request for handlers, the state that handlers share, the description of a route, and replies.

An error becomes a status, and `{"error": {"code", "message", "type", "param", "request_id"}}` (`refusal`). `type` and
`param` are OpenAI's, for clients that were written for it: `type` depends on the status, `param` is the invalid field
of the body.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_type_hints
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Send

from ....protocol.control.caller import Caller
from ....protocol.errors import CallboardError, ConfigError, Unauthorized, UsageError
from ...io.secret_redaction import hidden
from ..access.scopes import Rule
from ..control.requests import check_model
from .shapes.conversation import ClientCalls, Remembered
from .shapes.responses import StoredResponses

if TYPE_CHECKING:
    from ...runs.root import Root
    from ..control.hub import Hub
    from ..metrics import Metrics
    from .health import Health


SSE = "text/event-stream"


@dataclass(frozen=True)
class Api:
    """Shared state of all handlers.

    Attributes:
        hub: runs and questions of all front ends.
        health: state of the process.
        metrics: metrics; None if they are disabled.
        started: start of serving, by trio's clock.
        remembered: runs that wait for tools of their clients.
        responses: responses that others may continue.
        client_calls: calls of client tools, by run, for active runs with such tools.
    """

    hub: Hub
    root: Root
    health: Health
    metrics: Metrics | None = None
    started: float = 0.0
    remembered: Remembered = field(default_factory=Remembered)
    responses: StoredResponses = field(default_factory=StoredResponses)
    client_calls: WeakValueDictionary[str, ClientCalls] = field(default_factory=WeakValueDictionary)


class HttpCall:
    """Request with a known caller."""

    def __init__(self, api: Api, request: Request) -> None:
        self.api = api
        self.hub = api.hub
        self.request = request

    @property
    def caller(self) -> Caller:
        """Caller; public routes have none and must not read it."""
        caller = self.request.state.caller
        assert isinstance(caller, Caller)
        return caller

    @property
    def id(self) -> str:
        """Id of the request in replies and logs."""
        return getattr(self.request.state, "request_id", "")

    def path(self, name: str) -> str:
        """Return the value of a parameter in the route's path."""
        return str(self.request.path_params[name])

    def accepts(self, media: str) -> bool:
        """Return True if the `Accept` header names this media type. A wildcard does not count."""
        return media in self.request.headers.get("accept", "")

    def check_model(self, model: str | None) -> None:
        """Check the model that the request names.

        Raises:
            UsageError: there is no such model.
            Denied: it is a file that the caller may not load.
        """
        if model:
            check_model(self.caller, model, self.api.root)
            try:
                self.api.root.gateway.check(model)
            except ConfigError as error:
                raise UsageError(f"model: {error}") from None

    def last_seen(self) -> int | None:
        """Return the number of the last event that a reconnecting client has; None without `Last-Event-ID`.

        Raises:
            UsageError: `Last-Event-ID` is invalid.
        """
        given = self.request.headers.get("last-event-id")
        if given is None or not given.strip():
            return None
        # `int` also accepts signs, underscores and digits of other scripts. 15 digits stay below 2**53.
        if not (given.isascii() and given.isdigit() and len(given) < 16):
            raise UsageError("Last-Event-ID: the number of an event was expected")
        return int(given)


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON reply."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


Handler = Callable[..., Awaitable[ASGIApp]]
"""Function of an `HttpCall`, and of the decoded query and body if the route has them."""


@dataclass(frozen=True, kw_only=True)
class HttpRoute:
    """HTTP route.

    Attributes:
        method, path: method, and path with parameters in braces.
        rule: access rule.
        handler: see `Handler`.
        summary: one line for the OpenAPI document.
        tag: tag in the OpenAPI document.
        query, body: structs for decoding and validation before the call; `optional_body` may be missing.
        gives: type of the JSON reply; None for other replies.
        status: status of a success; `made`: status if a resource was created, if different.
        media: media types of replies other than JSON.
        errors: statuses of its errors, in addition to the common ones.
        resumes: True if `Last-Event-ID` is supported.
    """

    method: str
    path: str
    rule: Rule
    handler: Handler
    summary: str
    tag: str
    query: type | None = None
    body: type | None = None
    optional_body: bool = False
    gives: Any = None
    status: int = 200
    made: int | None = None
    media: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    resumes: bool = False


def route(method: str, path: str, rule: Rule, summary: str = "", **more: Any) -> Callable[[Handler], HttpRoute]:
    """Create a route from its handler. The handler's parameters `query` and `body` define their types.

    Args:
        summary: by default the handler's docstring.
        more: other attributes of `HttpRoute`.
    """

    def of(handler: Handler) -> HttpRoute:
        # The annotations are the schema: they decode requests, and describe the route in the OpenAPI document.
        taken = get_type_hints(handler)
        text = summary or (handler.__doc__ or "").removesuffix(".")
        query, body = taken.get("query"), taken.get("body")
        return HttpRoute(
            method=method, path=path, rule=rule, handler=handler, summary=text, query=query, body=body, **more
        )

    return of


STATUS = {
    "usage": 400,
    "invalid_file": 400,
    "unsupported": 400,
    "unpriced": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "request_timeout": 408,
    "conflict": 409,
    "knowledge_busy": 409,
    "knowledge_missing": 409,
    "cancelled": 499,
    "model": 502,
    "upstream": 502,
    "credentials": 502,
    "saturated": 503,
    "shutting_down": 503,
    "timeout": 504,
    "rate_limited": 429,
    "daily_budget": 429,
    "ledger": 503,
}
"""Status by error code; 500 for others."""

AGAIN = {"saturated": 1.0, "shutting_down": 5.0, "ledger": 5.0}
"""Retry time in seconds for errors without their own."""

DAY = 86_400

CODES = {404: "not_found", 405: "method_not_allowed", 406: "not_acceptable", 413: "too_large", 415: "unsupported_media"}
"""Codes of refusals by HTTP itself."""


class BodyTooSlow(CallboardError):
    """The body was not received in time."""

    code = "request_timeout"


class WrongMedia(CallboardError):
    """The route does not accept this type of body."""

    code = "unsupported_media"


class ErrorShape(msgspec.Struct, frozen=True, kw_only=True):
    """Error of a failed request: `code` is stable, `message` is for people, and `request_id` also occurs in the
    server's log.

    Attributes:
        type: as OpenAI names the class of an error.
        param: the field of the body that is wrong, where that is known.
    """

    code: str
    message: str
    request_id: str
    type: str = "server_error"
    param: str | None = None


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every error reply."""

    error: ErrorShape


class Watched:
    """Wrapper of `send` that records the status of the reply: None until the reply begins."""

    def __init__(self, send: Send) -> None:
        self.status: int | None = None
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def refusal(error: CallboardError, request_id: str, *, close: bool = False) -> Response:
    """Return the reply for an error; `close` closes the connection afterwards."""
    # A body that was not read to its end: the connection can serve no further request.
    headers = {"connection": "close"} if close or isinstance(error, BodyTooSlow) else {}
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    after = getattr(error, "retry_after", None)
    if after is None:
        # Until 00:00 UTC, when the next day of the spending limits begins.
        after = DAY - time.time() % DAY if error.code == "daily_budget" else AGAIN.get(error.code)
    if after is not None:
        headers["retry-after"] = str(max(1, math.ceil(after)))
    status = 415 if isinstance(error, WrongMedia) else STATUS.get(error.code, 500)
    return error_reply(status, error.code, str(error), request_id, headers)


def error_reply(
    status: int, code: str, message: str, request_id: str, headers: dict[str, str] | None = None
) -> Response:
    """Return an error reply, with secrets redacted."""
    text = hidden(message)
    shape = ErrorShape(code=code, message=text, request_id=request_id, type=type_of(status), param=_param(status, text))
    body = ErrorBody(error=shape)
    return Response(msgspec.json.encode(body), status, headers, "application/json")


TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
"""OpenAI's `type` by status; other refusals are `invalid_request_error`, failures `server_error`."""

_PLACE = re.compile(r"at `\$\.?([^`]{1,200})`$|^([a-z_]{1,40}(?:\[\d+\])?(?:\.[a-z_]{1,40})*): ")
"""Matches the field of the body in a message: at the end as a path, or before a colon."""


def type_of(status: int) -> str:
    """Return OpenAI's error type for a status."""
    return TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")


def _param(status: int, message: str) -> str | None:
    found = _PLACE.search(message) if status == 400 else None
    return None if found is None else found[1] or found[2]
