"""Routes for operators: whether the process lives, whether it takes work, and its metrics."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from .....protocol.errors import NotFound
from ...access.scopes import METRICS, OPEN
from ..call import Call, reply
from ..table import route

_route = partial(route, tag="health")


@_route("GET", "/healthz/live", OPEN, gives=dict, errors=(503,))
async def live(call: Call) -> Response:
    """Whether it lives."""
    status, body = call.api.health.live()
    return reply(body, status)


@_route("GET", "/healthz/ready", OPEN, gives=dict, errors=(503,))
async def ready(call: Call) -> Response:
    """Whether it takes work."""
    status, body = await call.api.health.ready()
    return reply(body, status)


@_route("GET", "/metrics", METRICS, media=("text/plain",))
async def metrics(call: Call) -> Response:
    """Figures for Prometheus."""
    if call.api.metrics is None:
        raise NotFound("no figures are kept here")
    from ...metrics import CONTENT_TYPE

    return Response(call.api.metrics.exposition(), media_type=None, headers={"content-type": CONTENT_TYPE})
