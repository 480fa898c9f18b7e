"""Routes for runs as resources, which exist with or without readers, and for their questions."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp

from .....protocol.control.method_structs import Forked, ForkRun, Rows, StartRun, Steps
from .....protocol.control.resources import RunInfo
from .....protocol.errors import Conflict
from ....io.http.sse import event
from ...access.scopes import ANSWER, CONTROL, FORK, QUESTIONS, READ_RUNS, RESUME, ROWS, START
from ...control.durable_runs import fork_run, rows_of, steps_of_run
from ...control.logs.files import LoggedEvent
from ..call import SSE, HttpCall, reply, route
from ..shapes.api import (
    AnswerBody,
    AnswerReply,
    CancelReply,
    EventsPage,
    EventsQuery,
    ForkBody,
    ListQuery,
    QuestionsPage,
    ResumeQuery,
    RowsQuery,
    RunQuery,
    RunsPage,
)
from ..streams import EventStream, Say, check_after

_route = partial(route, tag="runs")


@_route("POST", "/v1/runs", START, gives=RunInfo, status=201, errors=(404, 409))
async def start(call: HttpCall, body: StartRun) -> Response:
    """Start a run, which continues whether or not a client follows it."""
    run = await call.hub.start(call.caller, body)
    return reply(run, 201, {"location": f"/v1/runs/{run.run}"})


@_route("GET", "/v1/runs", READ_RUNS, gives=RunsPage, errors=(404,))
async def listed(call: HttpCall, query: ListQuery) -> Response:
    """List the runs, newest first."""
    runs, next = call.hub.page(call.caller, status=query.status, limit=query.limit, before=query.before)
    return reply(RunsPage(runs=runs, next=next))


@_route("GET", "/v1/runs/{run}", READ_RUNS, gives=RunInfo, errors=(404,))
async def one(call: HttpCall) -> Response:
    """Return a run."""
    return reply(await call.hub.read_run(call.caller, call.path("run")))


@_route("DELETE", "/v1/runs/{run}", CONTROL, status=204, errors=(404, 409))
async def delete(call: HttpCall) -> Response:
    """Delete a finished run and its events."""
    run = call.hub.get(call.caller, call.path("run"))
    if not run.over:
        raise Conflict(f"{run.run} is active; cancel it first with POST /v1/runs/{run.run}/cancel")
    await call.hub.delete(call.caller, run.run)
    return Response(status_code=204)


@_route("POST", "/v1/runs/{run}/cancel", CONTROL, gives=CancelReply, errors=(404,))
async def cancel(call: HttpCall) -> Response:
    """Cancel a run."""
    run = call.hub.get(call.caller, call.path("run"))
    return reply(CancelReply(run=run.run, cancelled=call.hub.cancel(call.caller, run.run)))


@_route("POST", "/v1/runs/{run}/resume", RESUME, gives=RunInfo, errors=(404, 409))
async def resume(call: HttpCall, query: ResumeQuery) -> Response:
    """Resume a run with the status `interrupted`."""
    return reply(await call.hub.resume(call.caller, call.path("run"), with_changes=query.with_changes))


@_route("GET", "/v1/runs/{run}/rows", ROWS, gives=Rows, errors=(404,))
async def rows(call: HttpCall, query: RowsQuery) -> Response:
    """Return the journal rows of a durable run, from which it can be resumed."""
    return reply(await rows_of(call.hub, call.caller, call.path("run"), query.after, query.limit))


@_route("GET", "/v1/runs/{run}/steps", ROWS, gives=Steps, errors=(404, 409))
async def steps(call: HttpCall, query: RowsQuery) -> Response:
    """Return the numbered steps of a durable run, at which it can be forked."""
    return reply(await steps_of_run(call.hub, call.caller, call.path("run"), query.after, query.limit))


@_route("POST", "/v1/runs/{run}/fork", FORK, gives=Forked, errors=(404, 409))
async def fork(call: HttpCall, body: ForkBody) -> Response:
    """Start another run that repeats the steps of this one up to a given step."""
    wanted = ForkRun(run=call.path("run"), **msgspec.structs.asdict(body))
    return reply(await fork_run(call.hub, call.caller, wanted))


@_route("GET", "/v1/runs/{run}/events", READ_RUNS, gives=EventsPage, media=(SSE,), errors=(404, 409), resumes=True)
async def events(call: HttpCall, query: EventsQuery) -> ASGIApp:
    """Return the events of a run: a page, or a stream that can be resumed."""
    run = call.hub.get(call.caller, call.path("run")).run
    seen = call.last_seen()
    if not call.accepts(SSE):
        return reply(await call.hub.page_of_events(call.caller, run, query.after, query.limit))
    # A browser reconnects with the same URL and a header that is newer than the query.
    after = query.after if seen is None else seen
    check_after(call, run, after)

    async def send_events(say: Say) -> None:
        async def each(happened: LoggedEvent) -> None:
            await say(event(happened.data, name=happened.kind, id=happened.seq))

        await call.hub.follow(call.caller, run, each, after)

    return EventStream(send_events)


@_route("GET", "/v1/runs/{run}/questions", QUESTIONS, gives=QuestionsPage, errors=(404,))
async def questions(call: HttpCall) -> Response:
    """List the open questions of a run."""
    run = call.hub.get(call.caller, call.path("run")).run
    return reply(QuestionsPage(questions=[msgspec.to_builtins(q) for q in call.hub.questions(call.caller, run)]))


@route("GET", "/v1/questions", QUESTIONS, tag="questions", gives=QuestionsPage, errors=(404,))
async def open_questions(call: HttpCall, query: RunQuery) -> Response:
    """List the open questions of all runs that the caller may see."""
    return reply(QuestionsPage(questions=[msgspec.to_builtins(q) for q in call.hub.questions(call.caller, query.run)]))


@route("POST", "/v1/questions/{question}/answer", ANSWER, tag="questions", gives=AnswerReply, errors=(404, 409))
async def answer(call: HttpCall, body: AnswerBody) -> Response:
    """Answer a question; the first answer counts."""
    question = call.path("question")
    if not await call.hub.answer(call.caller, question, body.value):
        raise Conflict(f"question {question} is no longer open")
    return reply(AnswerReply(question=question, answered=True))
