"""The handlers of routes, a module per kind of thing. A handler gets a `Call` and what was sent, and gives a reply."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.responses import Response

from ..call import Call, reply
from ..openapi import document_of
from ..table import Route, route
from . import about, agui, chat, completions, health, knowledge, mcp, page, questions, runs, sessions

MODULES = (about, runs, questions, completions, sessions, knowledge, mcp, chat, agui, health, page)


@cache
def _document() -> Any:
    return document_of(routes())


@route("GET", "/openapi.json", tag="about", gives=dict, open=True)
async def document(_: Call) -> Response:
    """This document."""
    return reply(_document())


def routes() -> tuple[Route, ...]:
    """All of them."""
    found = (each for module in MODULES for each in vars(module).values() if isinstance(each, Route))
    return (*found, document)
