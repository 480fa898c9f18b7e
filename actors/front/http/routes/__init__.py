"""The handlers of routes, a module per kind of thing. A handler gets a `Call` and what was sent, and gives a reply."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from starlette.responses import Response

from ...access.scopes import OPEN, Rule
from ..call import Call, Route, reply, route
from ..openapi import document_of
from . import about, agui, chat, completions, roles, runs, sessions

MODULES = (about, roles, runs, completions, sessions, chat, agui)


@cache
def _document() -> Any:
    return document_of(routes())


@route("GET", "/openapi.json", OPEN, tag="about", gives=dict)
async def document(_: Call) -> Response:
    """This document."""
    return reply(_document())


def routes() -> tuple[Route, ...]:
    """All of them."""
    found = (each for module in MODULES for each in vars(module).values() if isinstance(each, Route))
    return (*found, document)


@dataclass(frozen=True, slots=True)
class Found:
    """A template that a path fits, its rule, and what stands in the template's braces first."""

    template: str
    rule: Rule
    target: str | None


def find_route(method: str, path: str) -> Found | None:
    """What is asked for; None if there is no such route."""
    for pattern, each in _by_method.get("GET" if method == "HEAD" else method, ()):
        found = pattern.fullmatch(path)
        if found is not None:
            return Found(each.path, each.rule, found[1] if pattern.groups else None)
    return None


def templates_at(path: str) -> Iterator[str]:
    """The templates that a path fits, whatever the method."""
    for method in _by_method:
        if (found := find_route(method, path)) is not None:
            yield found.template


def _pattern(template: str) -> re.Pattern[str]:
    text = re.sub(r"\\\{\w+:path\\\}", "(.+)", re.escape(template))
    return re.compile(re.sub(r"\\\{\w+\\\}", "([^/]+)", text), re.DOTALL)


_by_method: dict[str, list[tuple[re.Pattern[str], Route]]] = {}
for _each in routes():
    _by_method.setdefault(_each.method, []).append((_pattern(_each.path), _each))
