"""`/v1/completions`: one prompt, one answer; in a session or without.

What a client gets last it gets when all is done: a session has been shortened, if it was long, and is on disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec
from starlette.types import ASGIApp, Send

from .....protocol.agent import Agent
from .....protocol.control.own import StartRun
from .....protocol.control.things import RunInfo
from .....protocol.errors import CallboardError, ConfigError, UsageError
from .....protocol.events import TERMINAL
from .....protocol.requests import Overrides
from ....io.http.sse import event
from ....runs.in_session import RoundedOff, on_stage, round_off
from ...control.logs.reading import LoggedEvent
from ...control.model_files import check_model as check_file
from ..call import Call, reply
from ..errors import NotImplementedYet
from ..following import Failed, Performed, Running, follow
from ..shapes.completion import Completion, CompletionReply, CompletionRequest, SessionCompletionRequest, Told
from ..sse import EventStream, Say
from ..table import SSE, Route

NO_ROLES = "roles are not there yet; an agent's `instructions` do what a role's prompt does"

Says = Callable[[list[Told], int], Awaitable[None]]
"""Tells some events, the last of which has this number."""


async def one_shot(call: Call, body: CompletionRequest) -> ASGIApp:
    """A prompt that no session keeps."""
    if body.role is not None:
        raise NotImplementedYet(NO_ROLES)
    check_model(call, body.model)
    asked = await call.asked(asked_for(body, body.agent or ""))
    request = msgspec.structs.replace(
        asked, target=body.agent or plain(body.model), overrides=overrides(body, agent=body.agent is not None)
    )

    async def perform(stack: AsyncExitStack, tell: Completed) -> None:
        running = await stack.enter_async_context(Running(call, lambda: call.begin(request)))
        await tell(running.info, None)

    return _performed(call, body, perform)


async def in_session(call: Call, body: SessionCompletionRequest) -> ASGIApp:
    """A prompt into a session, after those that wait for it already."""
    sessions = call.api.root.sessions
    check_model(call, body.model)
    stored = await sessions.get(call.caller, call.path("id"))
    rag = stored.session.other.get("rag")
    knowledge = [rag] if isinstance(rag, str) and rag else None
    asked = await call.asked(asked_for(body, stored.agent or "", knowledge=knowledge))
    request = msgspec.structs.replace(asked, target="", overrides=overrides(body, agent=stored.agent is not None))

    async def perform(stack: AsyncExitStack, tell: Completed) -> None:
        acting = on_stage(call.api.root, call.caller, stored.id, request, agent=stored.agent)
        act = await stack.enter_async_context(acting)
        running = await stack.enter_async_context(
            Running(call, lambda: call.begin(act.request, act.hooks, session=stored.id))
        )
        await tell(running.info, partial(round_off, call.api.root, act))

    return _performed(call, body, perform)


Completed = Callable[[RunInfo, Callable[[], Awaitable[RoundedOff]] | None], Awaitable[None]]
"""Tells a run to its end; given what rounds its session off, if it has one, which says what it has done."""


def check_model(call: Call, model: str | None) -> None:
    """Raise `UsageError` if there is no such model, `Denied` if it is a file that the caller may not have loaded."""
    if model:
        check_file(call.caller, model, call.api.root)
        try:
            call.api.root.gateway.check(model)
        except ConfigError as error:
            raise UsageError(f"model: {error}") from None


def plain(model: str | None, instructions: str = "") -> Agent:
    """A model by itself: no tools, no questions."""
    return Agent(name="model", model=model, instructions=instructions, can_ask_user=False)


def overrides(body: SessionCompletionRequest, *, agent: bool) -> Overrides:
    """The request's settings for the agent; a model by itself has no todo list to go on with."""
    sampling = {} if body.temperature is None else {"temperature": body.temperature}
    return Overrides(sampling=sampling, auto_continue=body.auto_continue if agent else None)


def asked_for(body: SessionCompletionRequest, target: str, **more: Any) -> StartRun:
    """What a request asks to be started."""
    files = [given.path or given.url or "" for given in body.files]
    if "" in files or any(given.path and given.url for given in body.files):
        raise UsageError("files: each has either a `path` or a `url`")
    if any(given.url and not given.url.startswith(("http://", "https://")) for given in body.files):
        raise UsageError("files: a `url` begins with http:// or https://")
    given = {name: value for name, value in more.items() if value is not None}
    return StartRun(target=target, prompt=body.prompt, model=body.model, files=files, timeout=body.timeout, **given)


def _performed(
    call: Call,
    body: SessionCompletionRequest,
    perform: Callable[[AsyncExitStack, Completed], Awaitable[None]],
) -> ASGIApp:
    streams = body.stream or call.accepts(SSE)

    async def performed(send: Send) -> None:
        async with AsyncExitStack() as stack:

            async def stream(run: RunInfo, shorten: Callable[[], Awaitable[RoundedOff]] | None) -> None:
                async def tell(say: Say) -> None:
                    async def says(events: list[Told], seq: int) -> None:
                        for number, (name, data) in enumerate(events, 1):
                            id = seq if number == len(events) else None
                            await say(event(msgspec.json.encode(data), name=name, id=id))

                    await _told(call, run, says, stack, shorten)

                await EventStream(tell).run(send)

            async def whole(run: RunInfo, shorten: Callable[[], Awaitable[RoundedOff]] | None) -> None:
                async def says(events: list[Told], seq: int) -> None:
                    pass

                told = await _told(call, run, says, stack, shorten)
                if told.error is not None:
                    raise Failed(*told.error)
                await reply(told.reply)(call.request.scope, call.request.receive, send)

            await perform(stack, stream if streams else whole)

    return Performed(performed)


async def _told(
    call: Call, run: RunInfo, says: Says, stack: AsyncExitStack, shorten: Callable[[], Awaitable[RoundedOff]] | None
) -> Completion:
    """Tell a run; its last events when all is closed that belongs to it."""
    told = Completion(call.id, run.run, run.session)
    last: list[tuple[list[Told], int]] = []

    async def each(happened: LoggedEvent) -> None:
        events = told.take(happened)
        if happened.kind in TERMINAL:
            last.append((events, happened.seq))
        elif events:
            await says(events, happened.seq)

    await follow(call, run.run, each)
    if shorten is not None:
        done = await shorten()
        for events, _ in last:
            events[:0] = told.rounded_off(compressed=done.compressed, autonamed=done.autonamed)
    try:
        await stack.aclose()
    except CallboardError as error:  # the answer is there all the same
        for events, _ in last:
            events[:0] = [("warning", {"code": error.code, "message": f"this was not kept: {error}"})]
    for events, seq in last:
        await says(events, seq)
    return told


_route = partial(
    Route, method="POST", tag="completions", gives=CompletionReply, media=(SSE,), errors=(404, 409, 499, 501, 502)
)

ROUTES = (
    _route(
        path="/v1/completions",
        handler=one_shot,
        summary="One prompt to an agent or a model; nothing is kept",
        body=CompletionRequest,
    ),
    _route(
        path="/v1/sessions/{id}/completions",
        handler=in_session,
        summary="One prompt into a session",
        body=SessionCompletionRequest,
    ),
)
