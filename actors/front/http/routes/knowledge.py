"""Knowledge bases that have a name."""

from __future__ import annotations

from functools import partial

from starlette.types import ASGIApp, Send

from .....protocol.errors import NotFound
from .....supervisors import Actor
from ....work.knowledge.base.model import BuildReport
from ..call import Call, reply
from ..following import Performed
from ..shapes.api import RagsList, RagTold, RebuildReply
from ..table import Route


async def listed(call: Call) -> ASGIApp:
    """Their names."""
    from ....work.knowledge.shelf import names

    return reply(RagsList(rags=[RagTold(name=name) for name in names(call.api.root.config_dir)]))


async def rebuild(call: Call) -> ASGIApp:
    """Build one anew. A client that leaves ends it, and the base stays as it was."""
    from ....work.knowledge.shelf import named, names

    root, name = call.api.root, call.path("name")
    if name not in names(root.config_dir):
        raise NotFound(f"there is no knowledge base '{name[:60]}'; GET /v1/rags lists those there are")
    recipe = named(name, root.config_dir)

    async def build(me: Actor) -> BuildReport:
        return await root.knowledge.build(me, recipe, rebuild=True)

    async def perform(send: Send) -> None:
        ref = root.kernel.spawn(build, name="rebuild", link=False)
        try:
            end = await ref.wait()
        finally:
            ref.cancel()
        if end.error is not None:
            raise end.error
        report = end.value
        done = RebuildReply(
            name=name,
            added=report.added,
            changed=report.changed,
            removed=report.removed,
            unchanged=report.unchanged,
            chunks=report.chunks,
        )
        await reply(done)(call.request.scope, call.request.receive, send)

    return Performed(perform)


_route = partial(Route, tag="knowledge")

ROUTES = (
    _route(method="GET", path="/v1/rags", handler=listed, summary="Knowledge bases with a name", gives=RagsList),
    _route(
        method="POST",
        path="/v1/rags/{name}/rebuild",
        handler=rebuild,
        summary="Build a knowledge base anew",
        gives=RebuildReply,
        errors=(404, 502),
    ),
)
