"""Route handlers, one module per resource.

A handler receives an `HttpCall` and the decoded input, and returns a reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from starlette.responses import Response

from ...access.scopes import OPEN, Rule
from ..call import HttpCall, HttpRoute, reply, route
from ..openapi import document_of
from . import about, agui, completions, openai, roles, runs, sessions

MODULES = (about, roles, runs, completions, sessions, openai, agui)


@cache
def _document() -> Any:
    return document_of(routes())


@route("GET", "/openapi.json", OPEN, tag="about", gives=dict)
async def document(_: HttpCall) -> Response:
    """This document."""
    return reply(_document())


def routes() -> tuple[HttpRoute, ...]:
    """Return all routes."""
    found = (each for module in MODULES for each in vars(module).values() if isinstance(each, HttpRoute))
    return (*found, document)


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """Matching route: its path template, its rule, and the value of its first parameter."""

    template: str
    rule: Rule
    target: str | None


def find_route(method: str, path: str) -> RouteMatch | None:
    """Return the route of a request; None if there is none."""
    for pattern, each in _by_method.get("GET" if method == "HEAD" else method, ()):
        found = pattern.fullmatch(path)
        if found is not None:
            return RouteMatch(each.path, each.rule, found[1] if pattern.groups else None)
    return None


def templates_at(path: str) -> Iterator[str]:
    """Yield the templates that match a path, for any method."""
    for method in _by_method:
        if (found := find_route(method, path)) is not None:
            yield found.template


def _pattern(template: str) -> re.Pattern[str]:
    text = re.sub(r"\\\{\w+:path\\\}", "(.+)", re.escape(template))
    return re.compile(re.sub(r"\\\{\w+\\\}", "([^/]+)", text), re.DOTALL)


_by_method: dict[str, list[tuple[re.Pattern[str], HttpRoute]]] = {}
for _each in routes():
    _by_method.setdefault(_each.method, []).append((_pattern(_each.path), _each))
