"""AG-UI (its documents of version 1): the body of a request, and a run as events.

Events that AG-UI lacks become CUSTOM events, named `callboard.…`; questions become one at once. In AG-UI a question
ends the run: `RUN_FINISHED` with an `interrupt`. A run of Callboard stays alive while it asks. So the interrupt is sent
only when no part of the run can continue without an answer. The request with the answer follows the same run.

A reader that begins in the middle feeds the projection all earlier events, and discards the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from .....protocol import events as ev
from .....protocol.chat import ToolCall
from .....protocol.control.bounds import MOST, Json, Name, Object, Objects, Text
from .....protocol.events import Event
from .....protocol.events.decode import decode
from .....protocol.kernel.questions import Question
from ....views.activity import Activity, ActivityChange
from ....views.run_view import RunView
from ...control.logs.files import LoggedEvent
from .openai import MOST_TOOLS, CallSaid, ChatMessage, FunctionOffered, call_as_openai

Told = list[dict[str, Json]]


class AguiMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message of the conversation; `content` is text, or parts.

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
    """A piece of the client's state that the model is shown."""

    description: Text
    value: Text


class ResumeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An answer to an interrupt. Of several that are open, one may be answered alone."""

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
    """Projects a run to AG-UI events.

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
