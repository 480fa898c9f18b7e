"""AG-UI: start a run for a client that displays it, or follow an existing run.

`POST /agui` starts a run and streams it; a client that disconnects ends it, unless the run waits for users. `GET
/agui/{run}` streams a run that was started otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio
from starlette.types import ASGIApp, Send

from .....protocol.chat import ToolCall
from .....protocol.errors import Conflict, UsageError
from .....protocol.events import Warned
from .....protocol.kernel.questions import Question
from ...access.scopes import READ_RUNS, START
from ...control.logs.files import LoggedEvent
from ..call import SSE, HttpCall, route
from ..shapes.agui import Agui, ResumeEntry, RunAgentInput, chat_messages
from ..shapes.api import TargetQuery
from ..shapes.conversation import asked
from ..shapes.openai import ChatCompletionRequest, ToolOffered
from ..streams import EventStream, Performed, RunBlock, Say, check_after, say_all
from .chat import PreparedChat, prepare, target_of

if TYPE_CHECKING:
    from .....protocol.control.things import RunInfo
    from ...control.cluster import Cluster

_route = partial(route, tag="ag-ui")

LOOK_EVERY = 0.1
"""Seconds between two checks whether a run with open questions has other work."""

ASK_EVERY = 0.5
"""The same interval if its worker has to be asked."""


@_route("POST", "/agui", START, media=(SSE,), errors=(404, 409, 502))
async def begin(call: HttpCall, query: TargetQuery, body: RunAgentInput) -> ASGIApp:
    """Start a run and follow it as AG-UI events; `resume` answers its questions."""
    if body.resume:
        run, after = await _resumed(call, body.resume)
        told = Agui(body.thread_id, body.run_id, run.run, calls=_calls_of(call, run.run))

        async def follow_run(say: Say) -> None:
            await _stream_events(call, told, run.run, say, after=after, again=True)

        return EventStream(follow_run)
    target = target_of(query.target, body.forwarded_props)
    prepared, warnings = await _prepared(call, target, body)
    # A run with tools of its client can't be resumed in another process.
    durable = not prepared.hooks.tools

    async def perform(send: Send) -> None:
        async with RunBlock(call, lambda: prepared.start(call, durable=durable)) as running:
            run = running.info.run
            told = Agui(body.thread_id, body.run_id, run, calls=_calls_of(call, run), warnings=warnings)

            async def send_events(say: Say) -> None:
                running.kept = await _stream_events(call, told, run, say)

            await EventStream(send_events).run(send)

    return Performed(perform)


async def _prepared(call: HttpCall, target: str, body: RunAgentInput) -> tuple[PreparedChat, list[Warned]]:
    tools = body.tools or []
    warnings = []
    if tools and target.partition("/")[0] in ("graph", "workflow"):
        text = f"tools: {target} is no agent and no model; the tools of its nodes are its own"
        warnings.append(Warned(code="client_tools", message=text))
        tools = []
    messages = chat_messages(body)
    find = partial(call.api.remembered.find, call.caller.subject)
    conversation = asked(messages, tools=bool(tools), find=find)
    request = ChatCompletionRequest(
        model=target, messages=messages, tools=[ToolOffered(type="function", function=tool) for tool in tools] or None
    )
    return await prepare(call, request, conversation), warnings


def _calls_of(call: HttpCall, run: str) -> Callable[[], tuple[ToolCall, ...]]:
    found = call.api.client_calls.get(run)
    return tuple if found is None else partial(found.calls, run)


@_route("GET", "/agui/{run}", READ_RUNS, media=(SSE,), errors=(404,), resumes=True)
async def watch(call: HttpCall) -> ASGIApp:
    """Follow a run as AG-UI events."""
    run = call.hub.get(call.caller, call.path("run"))
    after = call.last_seen() or 0
    check_after(call, run.run, after)
    told = Agui(run.session or run.run, run.run, run.run, calls=_calls_of(call, run.run))

    async def send_events(say: Say) -> None:
        await _stream_events(call, told, run.run, say, after=after)

    return EventStream(send_events)


async def _stream_events(
    call: HttpCall, told: Agui, run: str, say: Say, *, after: int = 0, again: bool = False
) -> bool:
    """Stream events after number `after`; return True if the run continues, waiting for users."""
    lock = trio.Lock()
    seen = 0
    interrupted = False

    async def each(happened: LoggedEvent) -> None:
        nonlocal seen
        async with lock:
            events = told.take(happened)
            seen = happened.seq
            if happened.seq > after:
                await say_all(say, happened.seq, events)
            elif happened.seq == after and again:
                await say_all(say, happened.seq, told.begin_again())

    async def watch_questions() -> None:
        nonlocal interrupted
        while True:
            await trio.sleep(ASK_EVERY if _cluster_with_run(call, run) else LOOK_EVERY)
            waiting = await stuck(call, run)
            async with lock:
                # All past events are sent before the event that ends the stream.
                told_all = seen >= max(after, 1, call.hub.get(call.caller, run).seq)
                # Compared with the questions of now: one may have been answered while `stuck` waited for a worker.
                if waiting and told_all and waiting == call.hub.questions(call.caller, run):
                    interrupted = True
                    await say_all(say, seen, told.interrupt(waiting))
                    nursery.cancel_scope.cancel()
                    return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_questions)
        await call.hub.follow(call.caller, run, each)
        nursery.cancel_scope.cancel()
    return interrupted


def _cluster_with_run(call: HttpCall, run: str) -> Cluster | None:
    """Return the cluster, if one of its workers executes the run."""
    cluster = call.hub.cluster
    return cluster if cluster is not None and cluster.has(run) else None


async def stuck(call: HttpCall, run: str) -> list[Question]:
    """Return the open questions if the run can't proceed without answers; otherwise none.

    A worker that can't be reached counts as having no other work.
    """
    questions = call.hub.questions(call.caller, run)
    if not questions:
        return []
    cluster = _cluster_with_run(call, run)
    actors = call.hub.actors.tree(call.caller, run) if cluster is None else await cluster.actors(run)
    parents = {actor.parent for actor in actors}
    asking = {question.actor for question in questions}
    for actor in actors:
        at_work = actor.path not in parents and actor.path not in asking
        idle = actor.kind == "actor" and actor.state == "waiting"  # such as a supervisor without children
        if at_work and not idle:
            return []
    return questions


async def _resumed(call: HttpCall, entries: list[ResumeEntry]) -> tuple[RunInfo, int]:
    """Submit the answers; return their run, and the number of its last event before them.

    Raises:
        UsageError: they belong to several runs.
        Conflict: no question waits any more.
    """
    open = {question.id: question for question in call.hub.questions(call.caller)}
    runs = {open[entry.interrupt_id].run for entry in entries if entry.interrupt_id in open}
    if not runs:
        raise Conflict("none of these questions waits for an answer any more")
    if len(runs) > 1:
        raise UsageError("resume: the answers are for several runs; resume one after the other")
    run = call.hub.get(call.caller, runs.pop())
    after = run.seq
    for entry in entries:
        question = open.get(entry.interrupt_id)
        if question is None:
            continue
        if entry.status == "resolved":
            await call.hub.answer(call.caller, question.id, _value(entry.payload))
        # AG-UI's `cancelled` has no value. These questions have a safe answer; any other one ends its run.
        elif question.permission or question.kind == "confirm":
            await call.hub.answer(call.caller, question.id, "no")
        else:
            call.hub.cancel(call.caller, question.run)
    return run, after


def _value(payload: object) -> str | list[str]:
    if isinstance(payload, dict):  # a form with one field
        payload = next(iter(payload.values()), "")
    if isinstance(payload, list):
        return [str(each) for each in payload]
    if isinstance(payload, bool):
        return "yes" if payload else "no"
    return str(payload)
