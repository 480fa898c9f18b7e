"""Describes the caller, the server, models, agents and roles."""

from __future__ import annotations

from functools import partial

import msgspec
import trio
from starlette.responses import Response

from .....protocol.errors import NotFound
from ...access.scopes import ANYBODY, READ_AGENTS, READ_MODELS
from ..call import Call, reply
from ..errors import NotImplementedYet
from ..shapes.api import AgentsList, AgentTold, Info, ModelsList, ModelTold, Subject
from ..table import route
from .completions import NO_ROLES

_route = partial(route, tag="about")


@_route("POST", "/v1/auth/check", ANYBODY, gives=Subject)
async def check(call: Call) -> Response:
    """Who the token stands for."""
    return reply(Subject(subject=call.caller.subject, scopes=sorted(call.caller.scopes)))


@_route("GET", "/v1/info", ANYBODY, gives=Info)
async def info(call: Call) -> Response:
    """What serves, and for how long."""
    from importlib.metadata import version

    under_way = 0
    if call.caller.has("read:runs"):
        under_way = sum(not run.over for run in call.hub.list(call.caller, limit=1_000))
    return reply(
        Info(
            name="callboard",
            version=version("callboard"),
            subject=call.caller.subject,
            uptime=trio.current_time() - call.api.started,
            runs=under_way,
        )
    )


@_route("GET", "/v1/models", READ_MODELS, gives=ModelsList)
async def models(call: Call) -> Response:
    """Models, and agents that can be asked like one."""
    return reply(ModelsList(data=await _models(call)))


@_route("GET", "/v1/models/{model:path}", READ_MODELS, gives=ModelTold, errors=(404,))
async def model(call: Call) -> Response:
    """One model."""
    wanted = call.path("model")
    found = next((each for each in await _models(call) if each.id == wanted), None)
    if found is None:
        raise NotFound(f"there is no model '{wanted[:60]}'; GET /v1/models lists those there are")
    return reply(found)


@_route("GET", "/v1/agents", READ_AGENTS, gives=AgentsList)
async def agents(call: Call) -> Response:
    """Everything that can be run."""
    targets = await call.hub.targets(call.caller)
    return reply(AgentsList(agents=msgspec.convert(targets, list[AgentTold], from_attributes=True)))


@_route("GET", "/v1/roles", READ_AGENTS, status=501)
async def roles(_: Call) -> Response:
    """Roles are not there yet."""
    raise NotImplementedYet(NO_ROLES)


async def _models(call: Call) -> list[ModelTold]:
    root = call.api.root
    default = root.gateway.choice().model
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
