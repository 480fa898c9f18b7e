"""Describes the caller, the server, models, agents and roles."""

from __future__ import annotations

from functools import partial

import trio
from starlette.responses import Response

from .....protocol.control.things import TargetInfo
from .....protocol.errors import NotFound
from ..call import Call, reply
from ..errors import NotImplementedYet
from ..shapes.api import AgentsList, AgentTold, Info, ModelsList, ModelTold, Subject
from ..table import Route
from .completions import NO_ROLES


async def check(call: Call) -> Response:
    """Whether the token is good, and for what."""
    return reply(Subject(subject=call.caller.subject, scopes=sorted(call.caller.scopes)))


async def info(call: Call) -> Response:
    """What serves."""
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


async def models(call: Call) -> Response:
    """Models of the settings, and everything that can be asked like one."""
    return reply(ModelsList(data=await _models(call)))


async def model(call: Call) -> Response:
    """One of them."""
    wanted = call.path("model")
    found = next((each for each in await _models(call) if each.id == wanted), None)
    if found is None:
        raise NotFound(f"there is no model '{wanted[:60]}'; GET /v1/models lists those there are")
    return reply(found)


async def agents(call: Call) -> Response:
    """Agents of the configuration directory and of the library."""
    return reply(AgentsList(agents=[_agent(target) for target in await call.hub.targets(call.caller)]))


async def roles(_: Call) -> Response:
    """Later."""
    raise NotImplementedYet(NO_ROLES)


def _agent(target: TargetInfo) -> AgentTold:
    return AgentTold(
        name=target.name,
        dialect=target.dialect,
        description=target.description,
        source=target.source,
        problem=target.problem,
        conversation_starters=target.conversation_starters,
    )


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


_route = partial(Route, tag="about")

ROUTES = (
    _route(method="POST", path="/v1/auth/check", handler=check, summary="Who the token stands for", gives=Subject),
    _route(method="GET", path="/v1/info", handler=info, summary="What serves, and for how long", gives=Info),
    _route(
        method="GET",
        path="/v1/models",
        handler=models,
        summary="Models, and agents that can be asked like one",
        gives=ModelsList,
    ),
    _route(
        method="GET",
        path="/v1/models/{model:path}",
        handler=model,
        summary="One model",
        gives=ModelTold,
        errors=(404,),
    ),
    _route(method="GET", path="/v1/agents", handler=agents, summary="Everything that can be run", gives=AgentsList),
    _route(method="GET", path="/v1/roles", handler=roles, summary="Roles are not there yet", status=501),
)
