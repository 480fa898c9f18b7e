"""AG-UI (its documents of version 1): the body of a request, and a run as events.

What AG-UI has no event for is a CUSTOM event, named `callboard.…`; so are questions, at once. AG-UI's own way of asking
is to end: `RUN_FINISHED` with an `interrupt`; a run of ours lives on, so that is sent only where nothing in it can go
on without an answer, and the request that brings one follows the same run further.

A reader that begins in the middle feeds the projection all earlier events, and sends nothing of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from .....protocol import events as ev
from .....protocol.control.bounds import MOST, Json, Name, Object, Objects, Text
from .....protocol.events import Event
from .....protocol.events.decode import decode
from .....protocol.kernel.questions import Question
from ....views.activity import Activity, Change
from ....views.run_view import RunView
from ...control.logs.reading import LoggedEvent

Told = list[dict[str, Json]]


class AguiMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the conversation; `content` is text, or parts."""

    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    id: Name = ""
    content: Text | Objects | Object | None = None


class ResumeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An answer to an interrupt. Of several that are open, one may be answered alone."""

    interrupt_id: Name
    status: Literal["resolved", "cancelled"]
    payload: Json = None


class RunAgentInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The conversation so far, and its context. Keys that are not listed are ignored, as the protocol says.

    Attributes:
        forwarded_props: `target` in it names what is run (as `model` of a chat completion does), if the query does not.
    """

    thread_id: Annotated[str, Meta(min_length=1, max_length=256)]
    run_id: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[AguiMessage], Meta(max_length=10_000)]
    state: Json = None
    forwarded_props: Json = None
    resume: Annotated[list[ResumeEntry], Meta(max_length=MOST)] | None = None


class Agui:
    """Projects one run.

    Args:
        thread, run: ids as the client has them.
    """

    def __init__(self, thread: str, run: str, ours: str) -> None:
        self._ids = {"threadId": thread, "runId": run}
        self._ours = ours
        self._view = RunView()
        self._message = ""
        self._thought = ""
        self._spoke = False
        self._turn = ""  # the message that calls belong to
        self._steps: dict[Activity, str] = {}
        self._calls: dict[Activity, str] = {}  # ids, each of which is sent once
        self._time = 0

    def take(self, logged: LoggedEvent) -> Told:
        """What there is to tell of an event."""
        event = decode(logged.data)
        if event is None:
            return []
        self._time = round(event.ts.timestamp() * 1000)
        return [self._dated(each) for each in self._tell(event, self._view.see(event))]

    def begin_again(self) -> Told:
        """For a client that comes back with an answer: a run begins for it, and the steps are open."""
        told = [self._begin(), *({"type": "STEP_STARTED", "stepName": step} for step in self._steps.values())]
        return [self._dated(each) for each in told]

    def interrupt(self, questions: Sequence[Question]) -> Told:
        """Nothing goes on without an answer."""
        outcome = {"type": "interrupt", "interrupts": [_interrupt(question) for question in questions]}
        closing = [{"type": "STEP_FINISHED", "stepName": step} for step in self._steps.values()]
        told = [*self._quiet(), *closing, {"type": "RUN_FINISHED", **self._ids, "outcome": outcome}]
        return [self._dated(each) for each in told]

    def _dated(self, event: dict[str, Json]) -> dict[str, Json]:
        return {**event, "timestamp": self._time}

    def _begin(self) -> dict[str, Json]:
        return {"type": "RUN_STARTED", **self._ids}

    def _tell(self, event: Event, change: Change) -> Iterator[dict[str, Json]]:
        for each in change.ended:
            if (step := self._steps.pop(each, None)) is not None:
                yield {"type": "STEP_FINISHED", "stepName": step}
        about, speaks = change.about, self._view.speaks(event)
        match event.data:
            case ev.RunStarted(name=name, model=model):
                yield self._begin()
                yield _custom("callboard.run", {"run": self._ours, "name": name, "model": model})
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
        # Ids of calls come again in the next run of a thread, but one thread's messages have to tell them apart.
        id = self._calls[call] = f"{self._ours}-{event.id}-{event.seq}"
        started = {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": call.name}
        if self._view.is_agent:  # all calls of a model's turn are of one message, be there text in it or not
            self._turn = self._turn or f"{self._ours}-{event.seq}-turn"
            started["parentMessageId"] = self._turn
        yield started
        if call.data.arguments:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": call.data.arguments}
        yield {"type": "TOOL_CALL_END", "toolCallId": id}

    def _step(self, node: Activity) -> str:
        step = node.name if node.data.item is None else f"{node.name}[{node.data.item}]"
        if step in self._steps.values():  # a node of a child graph that is called the same
            step = f"{step} ({node.actor})"
        self._steps[node] = step
        return step

    def _ended(self, event: Event) -> Iterator[dict[str, Json]]:
        outcome = self._view.outcome or {}
        yield from self._quiet()
        if event.kind == "run.cancelled":
            yield {"type": "RUN_FINISHED", **self._ids, "outcome": {"type": "cancelled"}}
            return
        if outcome["output"] and not (self._view.is_agent and self._spoke):  # of a worker's run pieces may be lost
            message = f"{self._ours}-{event.seq}"
            yield {"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"}
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": outcome["output"]}
            yield {"type": "TEXT_MESSAGE_END", "messageId": message}
        if event.kind == "run.failed":
            error = outcome["error"]
            yield {"type": "RUN_ERROR", "message": error["message"], "code": error["code"]}
            return
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
    """The question as AG-UI asks; a client that knows the schema can show a form."""
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
