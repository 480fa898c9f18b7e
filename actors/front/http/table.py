"""The description of one route, made by a decorator of its handler; `routes` lists them all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from starlette.types import ASGIApp

from ..access.scopes import Rule

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
        status: of a success.
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
    media: tuple[str, ...] = ()
    errors: tuple[int, ...] = ()
    resumes: bool = False


SSE = "text/event-stream"


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
