"""Route `/v1/completions`: one prompt, one answer; in a session or without.

The last events are sent after all work: a long session has been compressed, and is on disk.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import msgspec
from starlette.types import ASGIApp

from .....protocol.control.own import StartRun
from .....protocol.control.things import RunInfo
from .....protocol.errors import CallboardError, UsageError
from .....protocol.events import TERMINAL
from .....protocol.requests import Overrides
from ....io.http.sse import event
from ...access.scopes import PROMPT, START
from ...control.logs.files import LoggedEvent
from ...control.sessions import SessionTurn
from ..call import SSE, HttpCall, route
from ..shapes.completion import (
    CompletionProjection,
    CompletionReply,
    CompletionRequest,
    OneShotReply,
    SessionCompletionRequest,
    TextCompletion,
    Told,
)
from ..shapes.conversation import ConversationRequest
from ..streams import Say, run_and_reply, say_all
from .chat import DONE, KINDS, begin, model_agent
from .roles import check_role

_route = partial(route, tag="completions", media=(SSE,), errors=(404, 409, 499, 502))


@_route("POST", "/v1/completions", START, gives=OneShotReply)
async def one_shot(call: HttpCall, body: CompletionRequest) -> ASGIApp:
    """One prompt to an agent or a model; nothing is kept. With a `model` alone, also as OpenAI's old completions."""
    if body.is_openais and not call.accepts(SSE):
        return await _as_openai(call, body)
    if body.echo or body.stream_options or not isinstance(body.prompt, str):
        raise UsageError("echo, stream_options and a list as `prompt` need OpenAI's shape: a `model`, and no other key")
    await check_role(call, body.role, body.model)
    call.check_model(body.model)
    asked = await call.hub.request(call.caller, asked_for(body, body.agent or ""))
    request = msgspec.structs.replace(
        asked,
        target=body.agent or model_agent(None if body.role else body.model),
        role=body.role,
        overrides=overrides(body, agent=body.agent is not None),
    )
    return run_and_reply(
        call,
        lambda: call.hub.begin(call.caller, request, durable=False),
        partial(_stream_run, call, ()),
        streams=bool(body.stream) or call.accepts(SSE),
    )


async def _as_openai(call: HttpCall, body: CompletionRequest) -> ASGIApp:
    assert body.model is not None
    if body.model.partition("/")[0] not in KINDS:
        call.check_model(body.model)
    begun = await begin(call, body.model, ConversationRequest(system="", history=(), prompt=body.text))
    request = await begun.request(call)
    if begun.talks:
        request = msgspec.structs.replace(request, overrides=Overrides(sampling=body.sampling))
    usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    before = body.text if body.echo else ""

    async def send_events(run: RunInfo, say: Say) -> _Whole:
        told = TextCompletion(call.id, run.run, body.model or "", int(time.time()), before=before, usage=usage)

        async def each(happened: LoggedEvent) -> None:
            for chunk in told.chunks(happened):
                await say(event(msgspec.json.encode(chunk)))

        await call.hub.follow(call.caller, run.run, each)
        await say(DONE)
        return _Whole(told)

    return run_and_reply(
        call, lambda: call.hub.begin(call.caller, request, durable=False), send_events, streams=bool(body.stream)
    )


class _Whole:
    """Text completion with a finished run."""

    def __init__(self, told: TextCompletion) -> None:
        self.error = told.error
        self.reply = told.whole()


@_route("POST", "/v1/sessions/{id}/completions", PROMPT, gives=CompletionReply)
async def in_session(call: HttpCall, body: SessionCompletionRequest) -> ASGIApp:
    """One prompt into a session."""
    call.check_model(body.model)
    stored = await call.api.root.sessions.get(call.caller, call.path("id"))
    asked = await call.hub.request(call.caller, asked_for(body, stored.agent or ""))
    request = msgspec.structs.replace(asked, target="", overrides=overrides(body, agent=stored.agent is not None))
    turns: list[SessionTurn] = []

    async def start() -> RunInfo:
        turns.append(await call.hub.sessions.begin(call.caller, stored.id, request))
        return turns[0].info

    return run_and_reply(call, start, partial(_stream_run, call, turns), streams=body.stream or call.accepts(SSE))


def overrides(body: SessionCompletionRequest | CompletionRequest, *, agent: bool) -> Overrides:
    """Return the request's settings for the agent; a model by itself has no todo list to continue."""
    if isinstance(body, CompletionRequest):
        sampling = body.sampling
    else:
        sampling = {} if body.temperature is None else {"temperature": body.temperature}
    return Overrides(sampling=sampling, auto_continue=body.auto_continue if agent else None)


def asked_for(body: SessionCompletionRequest | CompletionRequest, target: str) -> StartRun:
    """Return the start request."""
    files = [given.path or given.url or "" for given in body.files]
    if "" in files or any(given.path and given.url for given in body.files):
        raise UsageError("files: each has either a `path` or a `url`")
    if any(given.url and not given.url.startswith(("http://", "https://")) for given in body.files):
        raise UsageError("files: a `url` begins with http:// or https://")
    return StartRun(
        target=target,
        prompt=body.text,
        model=body.model,
        files=files,
        timeout=body.timeout,
    )


async def _stream_run(call: HttpCall, turns: Sequence[SessionTurn], run: RunInfo, say: Say) -> CompletionProjection:
    """Stream a run. Its last events wait until its session is on disk: `turns` has its session turn, if any."""
    told = CompletionProjection(call.id, run.run, run.session)
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
        if isinstance(turn.error, CallboardError):  # the answer is sent anyway
            more = [("warning", {"code": turn.error.code, "message": f"this was not kept: {turn.error}"})]
        elif turn.error is not None:
            raise turn.error
        more += told.rounded_off(compressed=turn.rounded.compressed, autonamed=turn.rounded.autonamed)
    for events, seq in last:
        await say_all(say, seq, [*more, *events])
    return told
