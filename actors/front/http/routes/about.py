"""Routes about the caller, the server, models with their cost, and agents; routes for operators."""

from __future__ import annotations

from functools import partial

import msgspec
import trio
from starlette.responses import Response
from starlette.types import ASGIApp, Send

from .....protocol.chat import models_of
from .....protocol.control.resources import UsageGroup, UsageReport
from .....protocol.decoding import convert
from .....protocol.errors import NotFound
from .....protocol.version import VERSION
from ...access.scopes import (
    ANYBODY,
    METRICS,
    OPEN,
    READ_AGENTS,
    READ_MCP,
    READ_MODELS,
    READ_USAGE,
    REBUILD_KNOWLEDGE,
    RELOAD_MCP,
)
from ...control.usage import usage_of
from ...page import HEADERS, asset
from ..call import HttpCall, reply, route
from ..shapes.api import (
    AgentsList,
    AgentTold,
    Info,
    McpInfo,
    ModelsList,
    ModelTold,
    RagsList,
    RagTold,
    RebuildReply,
    ReloadBody,
    ReloadReply,
    Subject,
    UsageQuery,
)
from ..streams import Performed

_route = partial(route, tag="about")


@_route("POST", "/v1/auth/check", ANYBODY, gives=Subject)
async def check(call: HttpCall) -> Response:
    """Return the subject and the scopes of the token."""
    return reply(Subject(subject=call.caller.subject, scopes=sorted(call.caller.scopes)))


@_route("GET", "/v1/info", ANYBODY, gives=Info)
async def info(call: HttpCall) -> Response:
    """Return the server's version, uptime and number of active runs."""
    under_way = 0
    if call.caller.has("read:runs"):
        under_way = sum(not run.over for run in call.hub.list(call.caller, limit=1_000))
    return reply(
        Info(
            name="callboard",
            version=VERSION,
            subject=call.caller.subject,
            uptime=trio.current_time() - call.api.started,
            runs=under_way,
        )
    )


@_route("GET", "/v1/models", READ_MODELS, gives=ModelsList)
async def models(call: HttpCall) -> Response:
    """List the models, and the agents, graphs and workflows that can be used in place of a model."""
    return reply(ModelsList(data=await _models(call)))


@_route("GET", "/v1/models/{model:path}", READ_MODELS, gives=ModelTold, errors=(404,))
async def model(call: HttpCall) -> Response:
    """Return one model."""
    wanted = call.path("model")
    found = next((each for each in await _models(call) if each.id == wanted), None)
    if found is None:
        raise NotFound(f"there is no model '{wanted[:60]}'; list the models with GET /v1/models")
    return reply(found)


@_route("GET", "/v1/agents", READ_AGENTS, gives=AgentsList)
async def agents(call: HttpCall) -> Response:
    """List the agents, graphs and workflows that can be run."""
    targets = await call.hub.targets(call.caller)
    return reply(AgentsList(agents=convert(targets, list[AgentTold], from_attributes=True)))


@_route("GET", "/v1/usage", READ_USAGE, gives=UsageReport)
async def usage(call: HttpCall, query: UsageQuery) -> Response:
    """Return the tokens and cost of models: of the caller's own runs, or of all runs with the scope `admin:runs`."""
    by = convert(query.by.split(","), list[UsageGroup])
    return reply(await usage_of(call.api.root, call.caller, by, query.days))


async def _models(call: HttpCall) -> list[ModelTold]:
    root = call.api.root
    default = models_of(root.gateway.choice().model)[0]
    found = {default: ModelTold(id=default, owned_by=default.partition(":")[0], callboard={"default": True})}
    for client in root.settings.clients:
        for each in client.models:
            if each.type == "chat":
                id = f"{client.name}:{each.name}"
                beside = {"default": id == default, "input_price": each.input_price, "output_price": each.output_price}
                found[id] = ModelTold(id=id, owned_by=client.name, callboard=beside)
    if call.caller.has("read:agents"):
        for target in await call.hub.targets(call.caller):
            if not target.problem:
                id = f"{target.dialect}/{target.name}"
                told = {"dialect": target.dialect, "description": target.description}
                found[id] = ModelTold(id=id, owned_by="callboard", callboard=told)
    return list(found.values())


# --- for operators ---------------------------------------------------------------------------------------------


@route("GET", "/healthz/live", OPEN, gives=dict, errors=(503,), tag="health")
async def live(call: HttpCall) -> Response:
    """Check that the process is not shutting down."""
    status, body = call.api.health.live()
    return reply(body, status)


@route("GET", "/healthz/ready", OPEN, gives=dict, errors=(503,), tag="health")
async def ready(call: HttpCall) -> Response:
    """Check that the server accepts work."""
    status, body = await call.api.health.ready()
    return reply(body, status)


@route("GET", "/metrics", METRICS, media=("text/plain",), tag="health")
async def metrics(call: HttpCall) -> Response:
    """Return the metrics in the format of Prometheus."""
    if call.api.metrics is None:
        raise NotFound("this server has no metrics: they are disabled")
    from ...metrics import CONTENT_TYPE

    return Response(call.api.metrics.exposition(), media_type=None, headers={"content-type": CONTENT_TYPE})


@route("GET", "/v1/info/mcp", READ_MCP, gives=McpInfo, tag="mcp")
async def status(call: HttpCall) -> Response:
    """Return the MCP servers, and the counters of their pool."""
    servers = call.hub.mcp_status(call.caller)
    counters = msgspec.to_builtins(call.api.root.mcp.statistics())
    return reply(McpInfo(servers=servers, counters=counters))


@route("POST", "/v1/mcp/reload", RELOAD_MCP, gives=ReloadReply, optional_body=True, tag="mcp")
async def reload(call: HttpCall, body: ReloadBody) -> Response:
    """Read mcp.json again, and restart one MCP server or all that run."""
    return reply(ReloadReply(reloaded=await call.hub.mcp_reload(call.caller, body.server)))


@route("GET", "/v1/rags", READ_AGENTS, gives=RagsList, tag="knowledge")
async def knowledge(call: HttpCall) -> ASGIApp:
    """List the named knowledge bases."""
    from ....work.knowledge.registry import names

    return reply(RagsList(rags=[RagTold(name=name) for name in names(call.api.root.config_dir)]))


@route("POST", "/v1/rags/{name}/rebuild", REBUILD_KNOWLEDGE, gives=RebuildReply, errors=(404, 502), tag="knowledge")
async def rebuild(call: HttpCall) -> ASGIApp:
    """Rebuild a knowledge base."""
    from ....work.knowledge.registry import named, names

    root, name = call.api.root, call.path("name")
    if name not in names(root.config_dir):
        raise NotFound(f"there is no knowledge base '{name[:60]}'; list them with GET /v1/rags")
    recipe = named(name, root.config_dir)

    async def perform(send: Send) -> None:
        report = await root.build_knowledge(recipe, call.caller.subject, rebuild=True)
        counts = {field: getattr(report, field) for field in RebuildReply.__struct_fields__ if field != "name"}
        await reply(RebuildReply(name=name, **counts))(call.request.scope, call.request.receive, send)

    return Performed(perform)


# --- the page ----------------------------------------------------------------------------------------------------


async def _file(call: HttpCall) -> Response:
    """Return a file of the page.

    It contains no secret: the token is in the URL's fragment, which browsers do not send.
    """
    path = call.request.url.path
    found = asset(path)
    if found is None:
        raise NotFound(f"nothing is served at {path[:200]}")
    return Response(found.body, headers={**HEADERS, "content-type": found.content_type})


page = route("GET", "/", OPEN, "The page", tag="page", media=("text/html",))(_file)
file = route("GET", "/ui/{path:path}", OPEN, "A file of the page", tag="page", media=("text/html",), errors=(404,))(
    _file
)
