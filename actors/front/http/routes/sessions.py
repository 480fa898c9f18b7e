"""Routes for sessions: create, list, read, change, delete."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio
from starlette.responses import Response
from starlette.types import ASGIApp

from .....protocol.decoding import convert
from .....protocol.errors import UsageError
from ....runs.sessions.roles import name_of
from ....runs.sessions.store import SessionMeta, Stored
from ...access.scopes import CHANGE_SESSION, END_SESSION, LIST_SESSIONS, NEW_SESSION, READ_SESSION
from ..call import HttpCall, reply, route
from ..shapes.api import (
    AttachBody,
    CompressReply,
    NewSession,
    SessionDetail,
    SessionsPage,
    SessionTold,
)
from .roles import check_role

if TYPE_CHECKING:
    from ....runs.sessions.session_locks import Sessions

_route = partial(route, tag="sessions")


def _sessions(call: HttpCall) -> Sessions:
    return call.api.root.sessions


@_route("POST", "/v1/sessions", NEW_SESSION, gives=SessionTold, status=201, errors=(404, 409), optional_body=True)
async def create(call: HttpCall, body: NewSession) -> Response:
    """Create a session."""
    if body.role is not None and body.agent is not None:
        raise UsageError("a session can have an `agent` or a `role`, not both")
    await check_role(call, body.role, body.model)
    if body.agent is not None:
        await _check_agent(call, body.agent)
    if body.rag is not None:
        await _check_rag(call, body.rag)
    call.check_model(body.model)
    made = await _sessions(call).create(
        call.caller, agent=body.agent, alias=body.alias, model=body.model, rag=body.rag, role=body.role
    )
    return reply(_session_summary(made, body.rag), 201, {"location": f"/v1/sessions/{made.id}"})


@_route("GET", "/v1/sessions", LIST_SESSIONS, gives=SessionsPage, errors=(404, 409))
async def listed(call: HttpCall) -> Response:
    """List the sessions, newest first."""
    return reply(SessionsPage(sessions=[_session_summary(each) for each in await _sessions(call).list(call.caller)]))


@_route("GET", "/v1/sessions/{id}", READ_SESSION, gives=SessionDetail, errors=(404, 409))
async def one(call: HttpCall) -> Response:
    """Return a session with its messages."""
    return reply(_detail(await _sessions(call).get(call.caller, call.path("id"))))


@_route("DELETE", "/v1/sessions/{id}", END_SESSION, status=204, errors=(404, 409))
async def delete(call: HttpCall) -> Response:
    """Delete a session permanently."""
    await _sessions(call).delete(call.caller, call.path("id"))
    return Response(status_code=204)


@_route("POST", "/v1/sessions/{id}/compress", CHANGE_SESSION, gives=CompressReply, errors=(404, 409, 502))
async def compress(call: HttpCall) -> Response:
    """Replace the older messages of a session by a summary."""
    shortened = await _sessions(call).compress(call.caller, call.path("id"))
    return reply(CompressReply(id=call.path("id"), compressed=shortened))


@_route("POST", "/v1/sessions/{id}/empty", CHANGE_SESSION, gives=SessionDetail, errors=(404, 409))
async def empty(call: HttpCall) -> ASGIApp:
    """Delete the messages of a session."""
    await _sessions(call).empty(call.caller, call.path("id"))
    return await one.handler(call)


@_route("POST", "/v1/sessions/{id}/role", CHANGE_SESSION, gives=SessionTold, errors=(404, 409))
async def set_role(call: HttpCall, body: AttachBody) -> Response:
    """Set the role in which the model answers in a session."""
    await check_role(call, body.name)
    return reply(_session_summary(await _sessions(call).set_role(call.caller, call.path("id"), body.name)))


@_route("DELETE", "/v1/sessions/{id}/role", CHANGE_SESSION, gives=SessionTold, errors=(404, 409))
async def clear_role(call: HttpCall) -> Response:
    """Remove the role of a session."""
    return reply(_session_summary(await _sessions(call).set_role(call.caller, call.path("id"), None)))


@_route("POST", "/v1/sessions/{id}/agent", CHANGE_SESSION, gives=SessionTold, errors=(404, 409))
async def set_agent(call: HttpCall, body: AttachBody) -> Response:
    """Set the agent that answers in a session without messages."""
    await _check_agent(call, body.name)
    return reply(_session_summary(await _sessions(call).set_agent(call.caller, call.path("id"), body.name)))


@_route("DELETE", "/v1/sessions/{id}/agent", CHANGE_SESSION, gives=SessionTold, errors=(404, 409))
async def clear_agent(call: HttpCall) -> Response:
    """Remove the agent of a session."""
    return reply(_session_summary(await _sessions(call).set_agent(call.caller, call.path("id"), None)))


@_route("POST", "/v1/sessions/{id}/rag", CHANGE_SESSION, gives=SessionDetail, errors=(404, 409))
async def set_rag(call: HttpCall, body: AttachBody) -> ASGIApp:
    """Set the knowledge base that is searched for each prompt of a session."""
    await _check_rag(call, body.name)
    await _sessions(call).set_rag(call.caller, call.path("id"), body.name)
    return await one.handler(call)


@_route("DELETE", "/v1/sessions/{id}/rag", CHANGE_SESSION, gives=SessionDetail, errors=(404, 409))
async def clear_rag(call: HttpCall) -> ASGIApp:
    """Remove the knowledge base of a session."""
    await _sessions(call).set_rag(call.caller, call.path("id"), None)
    return await one.handler(call)


async def _check_agent(call: HttpCall, name: str) -> None:
    found = await call.hub.target(call.caller, name)
    if found is None:
        raise UsageError(f"there is no agent '{name[:60]}'; list the agents with GET /v1/agents")
    if found.dialect == "workflow":
        raise UsageError(f"'{name}' is a workflow, and workflows have no sessions")


async def _check_rag(call: HttpCall, name: str) -> None:
    from ....work.knowledge.registry import names

    if name not in await trio.to_thread.run_sync(names, call.api.root.config_dir):
        raise UsageError(f"there is no knowledge base '{name[:60]}'; list them with GET /v1/rags")


def _session_summary(meta: SessionMeta, rag: str | None = None) -> SessionTold:
    return msgspec.structs.replace(convert(meta, SessionTold, from_attributes=True), rag=rag)


def _detail(stored: Stored) -> SessionDetail:
    session = stored.session
    return SessionDetail(
        id=stored.id,
        alias=stored.alias,
        agent=stored.agent,
        role=None if stored.agent is not None else name_of(session),
        rag=session.other.get("rag"),
        model=session.model,
        title=session.title,
        owner=session.meta.owner,
        created_at=session.meta.created_at,
        messages=session.messages,
        compressed_messages=session.compressed_messages,
    )
