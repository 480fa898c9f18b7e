"""The page's files. They hold no secret: the token comes in the address' fragment, which no server sees."""

from __future__ import annotations

from starlette.responses import Response

from .....protocol.errors import NotFound
from ...page import HEADERS, asset
from ..call import Call
from ..table import Route


async def file(call: Call) -> Response:
    """One of them."""
    path = call.request.url.path
    found = asset(path)
    if found is None:
        raise NotFound(f"there is nothing at {path[:200]}")
    return Response(found.body, headers={**HEADERS, "content-type": found.content_type})


ROUTES = (
    Route(method="GET", path="/", handler=file, summary="The page", tag="page", media=("text/html",), open=True),
    Route(
        method="GET",
        path="/ui/{path:path}",
        handler=file,
        summary="A file of the page",
        tag="page",
        media=("text/html",),
        errors=(404,),
        open=True,
    ),
)
