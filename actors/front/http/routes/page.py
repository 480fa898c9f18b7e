"""The page's files. They hold no secret: the token comes in the address' fragment, which no server sees."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from .....protocol.errors import NotFound
from ...access.scopes import OPEN
from ...page import HEADERS, asset
from ..call import Call
from ..table import route

_route = partial(route, tag="page")


async def _file(call: Call) -> Response:
    path = call.request.url.path
    found = asset(path)
    if found is None:
        raise NotFound(f"there is nothing at {path[:200]}")
    return Response(found.body, headers={**HEADERS, "content-type": found.content_type})


page = _route("GET", "/", OPEN, "The page", media=("text/html",))(_file)
file = _route("GET", "/ui/{path:path}", OPEN, "A file of the page", media=("text/html",), errors=(404,))(_file)
