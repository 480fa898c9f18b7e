"""AG-UI: a run for a client that shows it, and a run that goes on already.

`POST /agui` starts a run and tells it; a client that leaves ends it, unless the run waits for people. `GET /agui/{run}`
tells a run that was started elsewhere.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio
from starlette.types import ASGIApp, Send

from .....protocol.errors import Conflict, UsageError
from .....protocol.kernel.questions import Question
from ...access.scopes import READ_RUNS, START
from ...control.logs.reading import LoggedEvent
from ..call import SSE, Call, route
from ..shapes.agui import Agui, AguiMessage, ResumeEntry, RunAgentInput
from ..shapes.api import TargetQuery
from ..shapes.conversation import asked
from ..shapes.openai import ChatMessage
from ..streams import EventStream, Performed, Running, Say, check_after, say_all
from .chat import begin as begin_chat
from .chat import target_of

if TYPE_CHECKING:
    from .....protocol.control.things import RunInfo
    from ...control.cluster import Cluster

_route = partial(route, tag="ag-ui")

LOOK_EVERY = 0.1
"""Seconds between two looks at whether a run with open questions has anything else to do."""

ASK_EVERY = 0.5
"""The same where its worker has to be asked."""


@_route("POST", "/agui", START, media=(SSE,), errors=(404, 409, 502))
async def begin(call: Call, query: TargetQuery, body: RunAgentInput) -> ASGIApp:
    """Start a run and follow it as AG-UI events; `resume` answers its questions."""
    if body.resume:
        run, after = await _resumed(call, body.resume)
        told = Agui(body.thread_id, body.run_id, run.run)

        async def go_on(say: Say) -> None:
            await _tell(call, told, run.run, say, after=after, again=True)

        return EventStream(go_on)
    begun = await begin_chat(call, target_of(query.target, body.forwarded_props), asked(_messages(body.messages)))
    request = await begun.request(call)

    async def perform(send: Send) -> None:
        async with Running(call, lambda: call.hub.begin(call.caller, request)) as running:
            run = running.info.run
            told = Agui(body.thread_id, body.run_id, run)

            async def tell(say: Say) -> None:
                running.kept = await _tell(call, told, run, say)

            await EventStream(tell).run(send)

    return Performed(perform)


@_route("GET", "/agui/{run}", READ_RUNS, media=(SSE,), errors=(404,), resumes=True)
async def watch(call: Call) -> ASGIApp:
    """Follow a run as AG-UI events."""
    run = call.hub.get(call.caller, call.path("run"))
    after = call.last_seen() or 0
    check_after(call, run.run, after)
    told = Agui(run.session or run.run, run.run, run.run)

    async def tell(say: Say) -> None:
        await _tell(call, told, run.run, say, after=after)

    return EventStream(tell)


async def _tell(call: Call, told: Agui, run: str, say: Say, *, after: int = 0, again: bool = False) -> bool:
    """Tell what comes after number `after`; whether the run goes on, waiting for people."""
    telling = trio.Lock()
    seen = 0
    interrupted = False

    async def each(happened: LoggedEvent) -> None:
        nonlocal seen
        async with telling:
            events = told.take(happened)
            seen = happened.seq
            if happened.seq > after:
                await say_all(say, happened.seq, events)
            elif happened.seq == after and again:
                await say_all(say, happened.seq, told.begin_again())

    async def look() -> None:
        nonlocal interrupted
        while True:
            await trio.sleep(ASK_EVERY if _elsewhere(call, run) else LOOK_EVERY)
            waiting = await stuck(call, run)
            async with telling:
                # All past events go out before the event that ends the stream.
                told_all = seen >= max(after, 1, call.hub.get(call.caller, run).seq)
                if waiting and told_all and waiting == call.hub.questions(call.caller, run):
                    interrupted = True
                    await say_all(say, seen, told.interrupt(waiting))
                    nursery.cancel_scope.cancel()
                    return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await call.hub.follow(call.caller, run, each)
        nursery.cancel_scope.cancel()
    return interrupted


def _elsewhere(call: Call, run: str) -> Cluster | None:
    """The cluster, if one of its workers plays the run."""
    cluster = call.hub.cluster
    return cluster if cluster is not None and cluster.has(run) else None


async def stuck(call: Call, run: str) -> list[Question]:
    """The questions without whose answers nothing in the run goes on; none if anything does. A worker that can't be
    reached is taken to do nothing else."""
    questions = call.hub.questions(call.caller, run)
    if not questions:
        return []
    cluster = _elsewhere(call, run)
    actors = call.hub.actors.tree(call.caller, run) if cluster is None else await cluster.actors(run)
    parents = {actor.parent for actor in actors}
    asking = {question.actor for question in questions}
    for actor in actors:
        at_work = actor.path not in parents and actor.path not in asking
        idle = actor.kind == "actor" and actor.state == "waiting"  # such as a supervisor without children
        if at_work and not idle:
            return []
    return questions


async def _resumed(call: Call, entries: list[ResumeEntry]) -> tuple[RunInfo, int]:
    """Give the answers; the run that they are for, and the number of the event it was at.

    Raises:
        UsageError: they are for several runs.
        Conflict: none of the questions waits any more.
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


def _messages(messages: list[AguiMessage]) -> list[ChatMessage]:
    kept = []
    for message in messages:
        if message.role in ("developer", "system", "user", "assistant"):
            content = message.content
            if isinstance(content, list):
                content = "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
            elif isinstance(content, dict):
                content = ""
            kept.append(ChatMessage(role=message.role, content=content))
    return kept
