"""Routes for operators: whether the process lives, whether it takes work, and its metrics."""

from __future__ import annotations

from starlette.responses import Response

from .....protocol.errors import NotFound
from ..call import Call, reply
from ..table import Route


async def live(call: Call) -> Response:
    """Whether it lives."""
    status, body = (200, {"status": "ok"}) if call.api.health is None else call.api.health.live()
    return reply(body, status)


async def ready(call: Call) -> Response:
    """Whether it takes work."""
    status, body = (200, {"status": "ok"}) if call.api.health is None else await call.api.health.ready()
    return reply(body, status)


async def metrics(call: Call) -> Response:
    """In Prometheus' own format."""
    if call.api.metrics is None:
        raise NotFound("no figures are kept here")
    from ...metrics import CONTENT_TYPE

    return Response(call.api.metrics.exposition(), media_type=None, headers={"content-type": CONTENT_TYPE})


ROUTES = (
    Route(
        method="GET",
        path="/healthz/live",
        handler=live,
        summary="Whether it lives",
        tag="health",
        gives=dict,
        errors=(503,),
        open=True,
    ),
    Route(
        method="GET",
        path="/healthz/ready",
        handler=ready,
        summary="Whether it takes work",
        tag="health",
        gives=dict,
        errors=(503,),
        open=True,
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=metrics,
        summary="Figures for Prometheus",
        tag="health",
        media=("text/plain",),
    ),
)
