"""Knowledge bases that have a name."""

from __future__ import annotations

from functools import partial

from starlette.types import ASGIApp, Send

from .....protocol.errors import NotFound
from .....supervisors import Actor
from ....work.knowledge.base.model import BuildReport
from ...access.scopes import READ_AGENTS, REBUILD_KNOWLEDGE
from ..call import Call, reply
from ..shapes.api import RagsList, RagTold, RebuildReply
from ..streams import Performed
from ..table import route

_route = partial(route, tag="knowledge")


@_route("GET", "/v1/rags", READ_AGENTS, gives=RagsList)
async def listed(call: Call) -> ASGIApp:
    """Knowledge bases with a name."""
    from ....work.knowledge.registry import names

    return reply(RagsList(rags=[RagTold(name=name) for name in names(call.api.root.config_dir)]))


@_route("POST", "/v1/rags/{name}/rebuild", REBUILD_KNOWLEDGE, gives=RebuildReply, errors=(404, 502))
async def rebuild(call: Call) -> ASGIApp:
    """Build a knowledge base anew."""
    from ....work.knowledge.registry import named, names

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
        counts = {field: getattr(end.value, field) for field in RebuildReply.__struct_fields__ if field != "name"}
        await reply(RebuildReply(name=name, **counts))(call.request.scope, call.request.receive, send)

    return Performed(perform)
