"""AG-UI (its documents of version 1): start a run for a client that displays it, or follow an existing run.

`POST /agui` starts a run and streams it. A client that disconnects cancels the run, unless an interrupt has already
ended the stream: the run then waits for the answer. `GET /agui/{run}` streams a run that was started otherwise.

`Agui` maps a run to events. Events that AG-UI lacks become CUSTOM events, named `callboard.…`; questions become one at
once. In AG-UI a question ends the run: `RUN_FINISHED` with an `interrupt`. A run of Callboard stays alive while it
asks. So the interrupt is sent only when no part of the run can continue without an answer. The request with the answer
follows the same run. A reader that begins in the middle feeds the projection all earlier events, and discards the
output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import trio
from msgspec import Meta
from starlette.types import ASGIApp, Send

from .....protocol import events as ev
from .....protocol.chat import ToolCall
from .....protocol.control.method_structs import MOST, Json, Name, Object, Objects, Text
from .....protocol.errors import Conflict, UsageError
from .....protocol.events import Event, Warned, decode
from .....protocol.kernel.questions import Question
from ....views.run_view import Activity, ActivityChange, RunView
from ...access.scopes import READ_RUNS, START
from ...control.logs.files import LoggedEvent
from ..call import SSE, HttpCall, route
from ..shapes.api import TargetQuery
from ..shapes.conversation import asked
from ..shapes.openai import (
    MOST_TOOLS,
    CallSaid,
    ChatCompletionRequest,
    ChatMessage,
    FunctionOffered,
    ToolOffered,
    call_as_openai,
)
from ..streams import EventStream, Performed, RunBlock, Say, check_after, say_all
from .openai import PreparedChat, prepare, target_of

if TYPE_CHECKING:
    from .....protocol.control.resources import RunInfo
    from ...control.cluster import Cluster


Told = list[dict[str, Json]]


class AguiMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Message of the conversation; `content` is text, or a list of parts.

    Attributes:
        tool_calls: of an assistant message.
        tool_call_id: of a `tool` message: the call whose result it is.
    """

    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    id: Name = ""
    content: Text | Objects | Object | None = None
    tool_calls: Annotated[list[CallSaid], Meta(max_length=MOST)] | None = None
    tool_call_id: Name | None = None


class ContextEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Part of the client's state that is shown to the model."""

    description: Text
    value: Text


class ResumeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Answer to an interrupt. Several open interrupts may be answered one by one."""

    interrupt_id: Name
    status: Literal["resolved", "cancelled"]
    payload: Json = None


class RunAgentInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The conversation so far, and its context. Keys that are not listed are ignored, as the protocol says.

    Attributes:
        tools: functions that the client executes. A call of one ends the run; the next request has its result.
        context: shown to the model before the prompt.
        forwarded_props: `target` in it names what is run (as `model` of a chat completion does), if the query does not.
    """

    thread_id: Annotated[str, Meta(min_length=1, max_length=256)]
    run_id: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[AguiMessage], Meta(max_length=10_000)]
    tools: Annotated[list[FunctionOffered], Meta(max_length=MOST_TOOLS)] | None = None
    context: Annotated[list[ContextEntry], Meta(max_length=MOST)] | None = None
    state: Json = None
    forwarded_props: Json = None
    resume: Annotated[list[ResumeEntry], Meta(max_length=MOST)] | None = None


def chat_messages(body: RunAgentInput) -> list[ChatMessage]:
    """Return the conversation as chat messages, the context as a system message first.

    Calls of the client's tools and their results are included. Calls of the agent's own tools are omitted, because the
    remembered run contains them.
    """
    names = {tool.name for tool in body.tools or ()}
    messages = [ChatMessage(role="system", content=_context_text(body.context))] if body.context else []
    calls: set[str] = set()
    for message in body.messages:
        content = _text_of(message.content)
        if message.role == "tool":
            if message.tool_call_id in calls:
                messages.append(ChatMessage(role="tool", content=content, tool_call_id=message.tool_call_id))
        elif message.role in ("developer", "system", "user", "assistant"):
            said = [call for call in message.tool_calls or () if call.function.name in names]
            calls.update(call.id for call in said)
            messages.append(ChatMessage(role=message.role, content=content, tool_calls=said or None))
    return messages


def _context_text(context: Sequence[ContextEntry]) -> str:
    return "\n\n".join(f"{entry.description}:\n{entry.value}" for entry in context)


def _text_of(content: Json) -> str | None:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    return "" if isinstance(content, dict) else content


class Agui:
    """Mapping of a run's events to AG-UI events.

    Args:
        thread, run: ids chosen by the client.
        ours: Callboard's id of the run.
        calls: returns the calls that the run leaves to its client; called when the run is over.
        warnings: warnings about parts of the request without effect, sent at the beginning.
    """

    def __init__(
        self,
        thread: str,
        run: str,
        ours: str,
        *,
        calls: Callable[[], tuple[ToolCall, ...]] = tuple,
        warnings: Sequence[ev.Warned] = (),
    ) -> None:
        self._client_calls = calls
        self._warnings = warnings
        self._ids = {"threadId": thread, "runId": run}
        self._ours = ours
        self._view = RunView()
        self._message = ""
        self._thought = ""
        self._spoke = False
        self._turn = ""  # id of the message that calls belong to
        self._steps: dict[Activity, str] = {}
        self._calls: dict[Activity, str] = {}  # ids, each of which is sent once
        self._time = 0

    def take(self, logged: LoggedEvent) -> Told:
        """Return the AG-UI events for an event of the run."""
        event = decode(logged.data)
        if event is None:
            return []
        self._time = round(event.ts.timestamp() * 1000)
        return [self._dated(each) for each in self._emit(event, self._view.see(event))]

    def begin_again(self) -> Told:
        """Return the opening events for a client that returns with an answer: the run and its open steps begin."""
        told = [self._begin(), *({"type": "STEP_STARTED", "stepName": step} for step in self._steps.values())]
        return [self._dated(each) for each in told]

    def interrupt(self, questions: Sequence[Question]) -> Told:
        """Return the closing events with an interrupt, when no part of the run can continue without an answer."""
        outcome = {"type": "interrupt", "interrupts": [_interrupt(question) for question in questions]}
        closing = [{"type": "STEP_FINISHED", "stepName": step} for step in self._steps.values()]
        told = [*self._quiet(), *closing, {"type": "RUN_FINISHED", **self._ids, "outcome": outcome}]
        return [self._dated(each) for each in told]

    def _dated(self, event: dict[str, Json]) -> dict[str, Json]:
        return {**event, "timestamp": self._time}

    def _begin(self) -> dict[str, Json]:
        return {"type": "RUN_STARTED", **self._ids}

    def _emit(self, event: Event, change: ActivityChange) -> Iterator[dict[str, Json]]:
        for each in change.ended:
            if (step := self._steps.pop(each, None)) is not None:
                yield {"type": "STEP_FINISHED", "stepName": step}
        about, speaks = change.about, self._view.speaks(event)
        match event.data:
            case ev.RunStarted(name=name, model=model):
                yield self._begin()
                yield _custom("callboard.run", {"run": self._ours, "name": name, "model": model})
                for warned in self._warnings:
                    yield _custom("callboard.warning", msgspec.to_builtins(warned))
            case ev.LlmRequest() if speaks:
                self._turn = ""
            case ev.LlmDelta(text=text) if speaks and text:
                yield from self._say(event, text)
            case ev.LlmReasoning(text=text) if speaks and text:
                yield from self._think(event, text)
            case ev.LlmResponse() if speaks:
                yield from self._quiet()
            case ev.ToolStarted() if about is not None and self._view.calls_itself(event):
                yield from self._call(event, about)
            case ev.ToolFinished(error=error, result=result) if about in self._calls:
                told = {"messageId": f"{self._ours}-{event.seq}", "toolCallId": self._calls.pop(about)}
                yield {"type": "TOOL_CALL_RESULT", **told, "content": error or result, "role": "tool"}
            case ev.NodeEntered() if about is not None:
                yield {"type": "STEP_STARTED", "stepName": self._step(about)}
            case ev.QuestionAsked(question=question):
                yield _custom("callboard.question", question)
            case ev.QuestionAnswered(by=by) | ev.QuestionExpired(reason=by):
                yield _custom("callboard.question_closed", {"id": event.id, "by": by})
            case ev.Warned() as warned:
                yield _custom("callboard.warning", msgspec.to_builtins(warned))
            case ev.RunFinished() | ev.RunFailed() | ev.RunCancelled():
                yield from self._ended(event)

    def _say(self, event: Event, text: str) -> Iterator[dict[str, Json]]:
        yield from self._thought_over()
        self._spoke = True
        if not self._message:
            self._message = self._turn = f"{self._ours}-{event.seq}"
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._message, "role": "assistant"}
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message, "delta": text}

    def _think(self, event: Event, text: str) -> Iterator[dict[str, Json]]:
        yield from self._message_over()
        if not self._thought:
            self._thought = f"{self._ours}-{event.seq}"
            yield {"type": "REASONING_START", "messageId": self._thought}
            yield {"type": "REASONING_MESSAGE_START", "messageId": self._thought, "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._thought, "delta": text}

    def _quiet(self) -> Told:
        return [*self._thought_over(), *self._message_over()]

    def _message_over(self) -> Told:
        message, self._message = self._message, ""
        return [{"type": "TEXT_MESSAGE_END", "messageId": message}] if message else []

    def _thought_over(self) -> Told:
        thought, self._thought = self._thought, ""
        if not thought:
            return []
        return [
            {"type": "REASONING_MESSAGE_END", "messageId": thought},
            {"type": "REASONING_END", "messageId": thought},
        ]

    def _call(self, event: Event, call: Activity) -> Iterator[dict[str, Json]]:
        yield from self._quiet()
        # Ids of calls repeat in the next run, but have to be unique among the messages of a thread.
        id = self._calls[call] = f"{self._ours}-{event.id}-{event.seq}"
        started = {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": call.name}
        if self._view.is_agent:  # all calls of a model's turn belong to one message, even without text
            self._turn = self._turn or f"{self._ours}-{event.seq}-turn"
            started["parentMessageId"] = self._turn
        yield started
        if call.data.arguments:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": call.data.arguments}
        yield {"type": "TOOL_CALL_END", "toolCallId": id}

    def _call_for_client(self, call: ToolCall, event: Event) -> Iterator[dict[str, Json]]:
        written = call_as_openai(call)
        self._turn = self._turn or f"{self._ours}-{event.seq}-turn"
        started = {"toolCallId": written.id, "toolCallName": call.name, "parentMessageId": self._turn}
        yield {"type": "TOOL_CALL_START", **started}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": written.id, "delta": written.function.arguments}
        yield {"type": "TOOL_CALL_END", "toolCallId": written.id}

    def _step(self, node: Activity) -> str:
        step = node.name if node.data.item is None else f"{node.name}[{node.data.item}]"
        if step in self._steps.values():  # a node of the same name in a child graph
            step = f"{step} ({node.actor})"
        self._steps[node] = step
        return step

    def _ended(self, event: Event) -> Iterator[dict[str, Json]]:
        outcome = self._view.outcome or {}
        yield from self._quiet()
        if event.kind == "run.cancelled":
            yield {"type": "RUN_FINISHED", **self._ids, "outcome": {"type": "cancelled"}}
            return
        if outcome["output"] and not (self._view.is_agent and self._spoke):  # pieces of a worker's run may be lost
            message = f"{self._ours}-{event.seq}"
            yield {"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"}
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": outcome["output"]}
            yield {"type": "TEXT_MESSAGE_END", "messageId": message}
        if event.kind == "run.failed":
            error = outcome["error"]
            yield {"type": "RUN_ERROR", "message": error["message"], "code": error["code"]}
            return
        for call in self._client_calls():
            yield from self._call_for_client(call, event)
        if outcome["state"]:
            yield {"type": "STATE_SNAPSHOT", "snapshot": outcome["state"]}
        yield {
            "type": "RUN_FINISHED",
            **self._ids,
            "result": {"run": self._ours, "output": outcome["output"]},
            "outcome": {"type": "success"},
            "usage": [_usage(model, used) for model, used in outcome["usage"].items()],
        }


def _custom(name: str, value: Json) -> dict[str, Json]:
    return {"type": "CUSTOM", "name": name, "value": value}


def _usage(model: str, used: dict[str, Json]) -> dict[str, Json]:
    provider, _, name = model.partition(":")
    tokens = {"inputTokens": used["input_tokens"], "outputTokens": used["output_tokens"]}
    return {"provider": provider, "model": name, **tokens, "totalTokens": sum(tokens.values())}


def _interrupt(question: Question) -> dict[str, Json]:
    """Return a question as an AG-UI interrupt. Its schema lets a client show a form."""
    schema: dict[str, Json]
    if question.kind == "confirm":
        schema = {"type": "string", "enum": ["yes", "no"]}
    elif question.kind == "checkbox":
        schema = {"type": "array", "items": {"type": "string", "enum": list(question.options)}}
    elif question.options and not question.free:
        schema = {"type": "string", "enum": list(question.options)}
    else:
        schema = {"type": "string"}
    reason = "confirmation" if question.permission or question.kind == "confirm" else "input_required"
    told: dict[str, Json] = {"id": question.id, "reason": reason, "message": question.text, "responseSchema": schema}
    told["metadata"] = {"run": question.run, "actor": question.actor, "options": list(question.options)}
    return told


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
        text = f"tools: {target} is neither an agent nor a model; its nodes only use their own tools"
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
    """Return the cluster if the run belongs to it and this process does not execute the run, else None."""
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
        raise Conflict("none of these questions is open any more")
    if len(runs) > 1:
        raise UsageError("resume: the answers belong to several runs; resume each run with a separate request")
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
