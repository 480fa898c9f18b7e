"""Runs as resources: they go on with or without readers."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp

from .....protocol.control.own import StartRun
from .....protocol.control.things import RunInfo
from .....protocol.errors import Conflict
from ....io.http.sse import event
from ...control.logs.reading import LoggedEvent
from ..call import Call, reply
from ..following import check_after, follow
from ..shapes.api import CancelReply, EventsPage, EventsQuery, ListQuery, QuestionsPage, RunsPage
from ..sse import EventStream, Say
from ..table import SSE, Route


async def start(call: Call, wanted: StartRun) -> Response:
    """It is under way when this is answered."""
    run = await call.hub.start(call.caller, wanted)
    return reply(run, 201, {"location": f"/v1/runs/{run.run}"})


async def listed(call: Call, query: ListQuery) -> Response:
    """Newest first, those of the past included."""
    runs, next = call.hub.page(call.caller, status=query.status, limit=query.limit, before=query.before)
    return reply(RunsPage(runs=runs, next=next))


async def one(call: Call) -> Response:
    """How it stands."""
    return reply(await call.hub.look(call.caller, call.path("run")))


async def delete(call: Call) -> Response:
    """Forget it; one that is under way has to be cancelled first."""
    run = call.hub.get(call.caller, call.path("run"))
    if not run.over:
        raise Conflict(f"{run.run} is under way: POST /v1/runs/{run.run}/cancel ends it")
    await call.hub.delete(call.caller, run.run)
    return Response(status_code=204)


async def cancel(call: Call) -> Response:
    """Tell it to end."""
    run = call.hub.get(call.caller, call.path("run"))
    return reply(CancelReply(run=run.run, cancelled=call.hub.cancel(call.caller, run.run)))


async def events(call: Call, query: EventsQuery) -> ASGIApp:
    """A page of its events, or with `Accept: text/event-stream` all of them as they come."""
    run = call.hub.get(call.caller, call.path("run")).run
    seen = call.last_seen()
    if not call.accepts(SSE):
        return reply(await _page(call, run, query))
    after = query.after if seen is None else seen
    check_after(call, run, after)

    async def tell(say: Say) -> None:
        async def each(happened: LoggedEvent) -> None:
            await say(event(happened.data, name=happened.kind, id=happened.seq))

        await follow(call, run, each, after)

    return EventStream(tell)


async def _page(call: Call, run: str, query: EventsQuery) -> EventsPage:
    found = await call.hub.events(call.caller, run, query.after, query.limit)
    last = found[-1].seq if found else query.after
    info = call.hub.get(call.caller, run)
    after = None if info.over and last >= info.seq else last
    return EventsPage(events=[msgspec.json.decode(each.data) for each in found], next=after)


async def questions(call: Call) -> Response:
    """What it waits for."""
    run = call.hub.get(call.caller, call.path("run")).run
    return reply(QuestionsPage(questions=[msgspec.to_builtins(q) for q in call.hub.questions(call.caller, run)]))


_route = partial(Route, tag="runs")

ROUTES = (
    _route(
        method="POST",
        path="/v1/runs",
        handler=start,
        summary="Start a run, which goes on whether or not anybody follows it",
        body=StartRun,
        gives=RunInfo,
        status=201,
        errors=(404, 409),
    ),
    _route(
        method="GET",
        path="/v1/runs",
        handler=listed,
        summary="Runs, newest first",
        query=ListQuery,
        gives=RunsPage,
        errors=(404,),
    ),
    _route(method="GET", path="/v1/runs/{run}", handler=one, summary="A run", gives=RunInfo, errors=(404,)),
    _route(
        method="DELETE",
        path="/v1/runs/{run}",
        handler=delete,
        summary="Forget a run that is over, and its events",
        status=204,
        errors=(404, 409),
    ),
    _route(
        method="POST",
        path="/v1/runs/{run}/cancel",
        handler=cancel,
        summary="End a run",
        gives=CancelReply,
        errors=(404,),
    ),
    _route(
        method="GET",
        path="/v1/runs/{run}/events",
        handler=events,
        summary="Everything that happens in a run: a page, or a stream that can be resumed",
        query=EventsQuery,
        gives=EventsPage,
        media=(SSE,),
        errors=(404, 409),
        resumes=True,
    ),
    _route(
        method="GET",
        path="/v1/runs/{run}/questions",
        handler=questions,
        summary="The questions that wait for an answer",
        gives=QuestionsPage,
        errors=(404,),
    ),
)
