"""Every route, and the document that describes them."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.responses import Response

from .call import Call, reply
from .openapi import document_of
from .routes import about, agui, chat, completions, health, knowledge, mcp, page, questions, runs, sessions
from .table import Route

ROOMS = (about, runs, questions, completions, sessions, knowledge, mcp, chat, agui, health, page)


async def document(_: Call) -> Response:
    """What this server answers, for programs."""
    return reply(_document())


@cache
def _document() -> Any:
    return document_of(routes())


def routes() -> tuple[Route, ...]:
    """All of them."""
    return (*(route for room in ROOMS for route in room.ROUTES), DOCUMENT)


DOCUMENT = Route(
    method="GET",
    path="/openapi.json",
    handler=document,
    summary="This document",
    tag="about",
    gives=dict,
    open=True,
)
