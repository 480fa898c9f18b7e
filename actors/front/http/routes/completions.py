"""`/v1/completions`: one prompt, one answer; in a session or without.

What a client gets last it gets when all is done: a session has been shortened, if it was long, and is on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from starlette.types import ASGIApp

from .....protocol.agent import Agent
from .....protocol.control.own import StartRun
from .....protocol.control.things import RunInfo
from .....protocol.errors import CallboardError, ConfigError, UsageError
from .....protocol.events import TERMINAL
from .....protocol.requests import Overrides
from ...access.scopes import PROMPT, START
from ...control.logs.reading import LoggedEvent
from ...control.requests import check_model as check_file
from ...control.sessions import SessionTurn
from ..call import SSE, Call, route
from ..shapes.completion import Completion, CompletionReply, CompletionRequest, SessionCompletionRequest, Told
from ..streams import Say, run_and_reply, say_all
from .roles import check_role

_route = partial(route, tag="completions", gives=CompletionReply, media=(SSE,), errors=(404, 409, 499, 502))


@_route("POST", "/v1/completions", START)
async def one_shot(call: Call, body: CompletionRequest) -> ASGIApp:
    """One prompt to an agent or a model; nothing is kept."""
    await check_role(call, body.role, body.model)
    check_model(call, body.model)
    asked = await call.hub.request(call.caller, asked_for(body, body.agent or ""))
    request = msgspec.structs.replace(
        asked,
        target=body.agent or plain(None if body.role else body.model),
        role=body.role,
        overrides=overrides(body, agent=body.agent is not None),
    )
    return run_and_reply(
        call,
        lambda: call.hub.begin(call.caller, request, durable=False),
        partial(_tell, call, ()),
        streams=body.stream or call.accepts(SSE),
    )


@_route("POST", "/v1/sessions/{id}/completions", PROMPT)
async def in_session(call: Call, body: SessionCompletionRequest) -> ASGIApp:
    """One prompt into a session."""
    check_model(call, body.model)
    stored = await call.api.root.sessions.get(call.caller, call.path("id"))
    asked = await call.hub.request(call.caller, asked_for(body, stored.agent or ""))
    request = msgspec.structs.replace(asked, target="", overrides=overrides(body, agent=stored.agent is not None))
    turns: list[SessionTurn] = []

    async def start() -> RunInfo:
        turns.append(await call.hub.sessions.begin(call.caller, stored.id, request))
        return turns[0].info

    return run_and_reply(call, start, partial(_tell, call, turns), streams=body.stream or call.accepts(SSE))


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


def asked_for(body: SessionCompletionRequest, target: str) -> StartRun:
    """What a request asks to be started."""
    files = [given.path or given.url or "" for given in body.files]
    if "" in files or any(given.path and given.url for given in body.files):
        raise UsageError("files: each has either a `path` or a `url`")
    if any(given.url and not given.url.startswith(("http://", "https://")) for given in body.files):
        raise UsageError("files: a `url` begins with http:// or https://")
    return StartRun(target=target, prompt=body.prompt, model=body.model, files=files, timeout=body.timeout)


async def _tell(call: Call, turns: Sequence[SessionTurn], run: RunInfo, say: Say) -> Completion:
    """Tell a run; its last events when its session is on disk: `turns` has its turn, if it is of one."""
    told = Completion(call.id, run.run, run.session)
    last: list[tuple[list[Told], int]] = []

    async def each(happened: LoggedEvent) -> None:
        events = told.take(happened)
        if happened.kind in TERMINAL:
            last.append((events, happened.seq))
        else:
            await say_all(say, happened.seq, events)

    await call.hub.follow(call.caller, run.run, each)
    more: list[Told] = []
    for turn in turns:
        await turn.over.wait()
        if isinstance(turn.error, CallboardError):  # the answer is there all the same
            more = [("warning", {"code": turn.error.code, "message": f"this was not kept: {turn.error}"})]
        elif turn.error is not None:
            raise turn.error
        more += told.rounded_off(compressed=turn.rounded.compressed, autonamed=turn.rounded.autonamed)
    for events, seq in last:
        await say_all(say, seq, [*more, *events])
    return told
