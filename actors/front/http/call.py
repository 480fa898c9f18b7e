"""One request as its handler sees it, what all handlers share, and the description of a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from ....protocol.control.caller import Caller
from ....protocol.errors import UsageError
from ..access.scopes import Rule
from .shapes.conversation import Remembered

if TYPE_CHECKING:
    from ...runs.root import Root
    from ..control.hub import Hub
    from ..metrics import Metrics
    from .health import Health


SSE = "text/event-stream"


@dataclass(frozen=True)
class Api:
    """What all handlers share.

    Attributes:
        hub: runs and questions, of all front ends.
        health: the state of the process.
        metrics: its figures; None where they are not kept.
        started: when we began to serve, by trio's clock.
        remembered: runs that wait for tools of their clients.
    """

    hub: Hub
    root: Root
    health: Health
    metrics: Metrics | None = None
    started: float = 0.0
    remembered: Remembered = field(default_factory=Remembered)


class Call:
    """A request whose caller is known."""

    def __init__(self, api: Api, request: Request) -> None:
        self.api = api
        self.hub = api.hub
        self.request = request

    @property
    def caller(self) -> Caller:
        """The caller; public routes have none and must not read it."""
        caller = self.request.state.caller
        assert isinstance(caller, Caller)
        return caller

    @property
    def id(self) -> str:
        """What the reply calls this request, and the logs too."""
        return getattr(self.request.state, "request_id", "")

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def accepts(self, media: str) -> bool:
        """Whether the client asks for this kind of reply."""
        return media in self.request.headers.get("accept", "")

    def last_seen(self) -> int | None:
        """The number of the last event that a client has, which comes back for the rest.

        Raises:
            UsageError: `Last-Event-ID` is none of ours.
        """
        given = self.request.headers.get("last-event-id")
        if given is None or not given.strip():
            return None
        if not (given.isascii() and given.isdigit() and len(given) < 16):
            raise UsageError("Last-Event-ID: the number of an event was expected")
        return int(given)


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A reply in JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


Handler = Callable[..., Awaitable[ASGIApp]]
"""Gets the `Call`, then what was decoded of the query and of the body, where the route has them."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """One thing that can be asked for.

    Attributes:
        method, path: parts of the path in braces.
        rule: what a caller needs for it.
        handler: see `Handler`.
        summary: one line for the document.
        tag: under which the document lists it.
        query, body: structs that are decoded and checked before the handler is called; `optional_body` may be missing.
        gives: type of the JSON reply; None for another kind, or none at all.
        status: of a success; `made`: of one that has made something new, where that is another.
        media: kinds of reply beside JSON.
        errors: statuses of its own; those that any route may have are added to them.
        resumes: whether `Last-Event-ID` is heeded.
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


def route(method: str, path: str, rule: Rule, summary: str = "", **more: Any) -> Callable[[Handler], Route]:
    """Makes a route of its handler. What the handler is called with, its parameters `query` and `body` say.

    Args:
        summary: by default the handler's docstring.
        more: other attributes of `Route`.
    """

    def of(handler: Handler) -> Route:
        taken = get_type_hints(handler)
        text = summary or (handler.__doc__ or "").removesuffix(".")
        query, body = taken.get("query"), taken.get("body")
        return Route(method=method, path=path, rule=rule, handler=handler, summary=text, query=query, body=body, **more)

    return of
