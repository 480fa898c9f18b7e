"""HTTP request for handlers, the state that handlers share, and the description of a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_type_hints
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from ....protocol.control.caller import Caller
from ....protocol.errors import ConfigError, UsageError
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
        """Return a parameter of the path."""
        return str(self.request.path_params[name])

    def accepts(self, media: str) -> bool:
        """Return True if the client accepts this media type."""
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
        """Return the number of the last event that a reconnecting client has.

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
