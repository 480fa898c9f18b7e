"""Sessions: made, listed, read, changed, removed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio
from starlette.responses import Response

from .....protocol.errors import UsageError
from ....runs.sessions.store import SessionMeta, Stored
from ..call import Call, reply
from ..errors import NotImplementedYet
from ..shapes.sessions import (
    AttachBody,
    CompressReply,
    NewSession,
    SessionDetail,
    SessionsPage,
    SessionTold,
)
from ..table import Route
from .completions import NO_ROLES, check_model

if TYPE_CHECKING:
    from ....runs.sessions.live import Sessions


def _sessions(call: Call) -> Sessions:
    return call.api.root.sessions


async def create(call: Call, body: NewSession) -> Response:
    """A new one."""
    if body.role is not None:
        raise NotImplementedYet(NO_ROLES)
    if body.agent is not None:
        await _check_agent(call, body.agent)
    if body.rag is not None:
        await _check_rag(call, body.rag)
    check_model(call, body.model)
    made = await _sessions(call).create(call.caller, agent=body.agent, alias=body.alias, model=body.model, rag=body.rag)
    return reply(_told(made, body.rag), 201, {"location": f"/v1/sessions/{made.id}"})


async def listed(call: Call) -> Response:
    """Those the caller may see, newest first."""
    return reply(SessionsPage(sessions=[_told(each) for each in await _sessions(call).list(call.caller)]))


async def one(call: Call) -> Response:
    """With all that was said."""
    return reply(_detail(await _sessions(call).get(call.caller, call.path("id"))))


async def delete(call: Call) -> Response:
    """For good."""
    await _sessions(call).delete(call.caller, call.path("id"))
    return Response(status_code=204)


async def compress(call: Call) -> Response:
    """A summary takes the place of what was said."""
    shortened = await _sessions(call).compress(call.caller, call.path("id"))
    return reply(CompressReply(id=call.path("id"), compressed=shortened))


async def empty(call: Call) -> Response:
    """All that was said is forgotten; the session stays."""
    await _sessions(call).empty(call.caller, call.path("id"))
    return await one(call)


async def role(_: Call) -> Response:
    """Later."""
    raise NotImplementedYet(NO_ROLES)


async def set_agent(call: Call, body: AttachBody) -> Response:
    """From now on this agent answers."""
    await _check_agent(call, body.name)
    return reply(_told(await _sessions(call).set_agent(call.caller, call.path("id"), body.name)))


async def clear_agent(call: Call) -> Response:
    """From now on the model itself answers."""
    return reply(_told(await _sessions(call).set_agent(call.caller, call.path("id"), None)))


async def set_rag(call: Call, body: AttachBody) -> Response:
    """From now on prompts are looked up in this knowledge base."""
    await _check_rag(call, body.name)
    await _sessions(call).set_rag(call.caller, call.path("id"), body.name)
    return await one(call)


async def clear_rag(call: Call) -> Response:
    """From now on in none."""
    await _sessions(call).set_rag(call.caller, call.path("id"), None)
    return await one(call)


async def _check_agent(call: Call, name: str) -> None:
    found = await call.hub.target(call.caller, name)
    if found is None:
        raise UsageError(f"there is no agent '{name[:60]}'; GET /v1/agents lists those there are")
    if found.dialect == "workflow":
        raise UsageError(f"'{name}' is a workflow, and those have no sessions")


async def _check_rag(call: Call, name: str) -> None:
    from ....work.knowledge.shelf import names

    if name not in await trio.to_thread.run_sync(names, call.api.root.config_dir):
        raise UsageError(f"there is no knowledge base '{name[:60]}'; GET /v1/rags lists those there are")


def _told(meta: SessionMeta, rag: str | None = None) -> SessionTold:
    return SessionTold(
        id=meta.id,
        alias=meta.alias,
        agent=meta.agent,
        rag=rag,
        model=meta.model,
        title=meta.title,
        owner=meta.owner,
        created_at=meta.created_at,
        last_modified=meta.last_modified,
    )


def _detail(stored: Stored) -> SessionDetail:
    session = stored.session
    return SessionDetail(
        id=stored.id,
        alias=stored.alias,
        agent=stored.agent,
        rag=session.other.get("rag"),
        model=session.model,
        title=session.title,
        owner=session.meta.owner,
        created_at=session.meta.created_at,
        messages=session.messages,
        compressed_messages=session.compressed_messages,
    )


_route = partial(Route, tag="sessions", errors=(404, 409))
_ONE = "/v1/sessions/{id}"

ROUTES = (
    _route(
        method="POST",
        path="/v1/sessions",
        handler=create,
        summary="A new session",
        body=NewSession,
        optional_body=True,
        gives=SessionTold,
        status=201,
        errors=(404, 409, 501),
    ),
    _route(method="GET", path="/v1/sessions", handler=listed, summary="Sessions, newest first", gives=SessionsPage),
    _route(method="GET", path=_ONE, handler=one, summary="A session, with all that was said", gives=SessionDetail),
    _route(method="DELETE", path=_ONE, handler=delete, summary="Remove a session for good", status=204),
    _route(
        method="POST",
        path=f"{_ONE}/compress",
        handler=compress,
        summary="Shorten a session by a summary",
        gives=CompressReply,
        errors=(404, 409, 502),
    ),
    _route(method="POST", path=f"{_ONE}/empty", handler=empty, summary="Forget what was said", gives=SessionDetail),
    _route(
        method="POST",
        path=f"{_ONE}/agent",
        handler=set_agent,
        summary="Have an agent answer in a session where nothing was said yet",
        body=AttachBody,
        gives=SessionTold,
    ),
    _route(method="DELETE", path=f"{_ONE}/agent", handler=clear_agent, summary="No agent any more", gives=SessionTold),
    _route(
        method="POST",
        path=f"{_ONE}/rag",
        handler=set_rag,
        summary="Look every prompt up in a knowledge base",
        body=AttachBody,
        gives=SessionDetail,
    ),
    _route(method="DELETE", path=f"{_ONE}/rag", handler=clear_rag, summary="No knowledge", gives=SessionDetail),
    _route(method="POST", path=f"{_ONE}/role", handler=role, summary="Roles are not there yet", status=501),
    _route(method="DELETE", path=f"{_ONE}/role", handler=role, summary="Roles are not there yet", status=501),
)
