"""A run told in AG-UI's events (its documents of version 1).

What has no word there is a CUSTOM event, named `callboard.…`. Questions are told so at once. AG-UI's own way of asking
is to end: `RUN_FINISHED` with an `interrupt`; a run of ours lives on, so that is said only where nothing in it can go
on without an answer, and the request that brings one follows the same run further.

Whoever begins to read in the middle has the projection see all that was before, and tells none of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from .....protocol.questions import Question
from .speaker import Speaker
from .wire import Wire

Json = Any
Told = list[dict[str, Json]]


class Agui:
    """Projects one run.

    Args:
        thread, run: ids as the client has them.
    """

    def __init__(self, thread: str, run: str, ours: str) -> None:
        self._ids = {"threadId": thread, "runId": run}
        self._ours = ours
        self._speaker = Speaker()
        self._message = ""
        self._thought = ""
        self._turn = ""  # the message that calls belong to
        self._steps: dict[str, str] = {}  # by actor
        self._calls: dict[str, str] = {}  # by actor: the call's id, which is told once
        self._time = 0

    def take(self, event: Wire) -> Told:
        """What there is to tell of an event."""
        self._speaker.notice(event)
        self._time = _milliseconds(event.ts)
        tell = _TELL.get(event.kind)
        return [] if tell is None else [self._dated(each) for each in tell(self, event)]

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

    # --- one method per kind ----------------------------------------------------------------------------------

    def _started(self, event: Wire) -> Iterable[dict[str, Json]]:
        yield self._begin()
        value = {"run": self._ours, "name": event.data["name"], "model": event.data.get("model")}
        yield _custom("callboard.run", value)

    def _delta(self, event: Wire) -> Iterable[dict[str, Json]]:
        if not self._speaker.says(event) or not event.data["text"]:
            return
        yield from self._thought_over()
        if not self._message:
            self._message = self._turn = f"{self._ours}-{event.seq}"
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._message, "role": "assistant"}
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message, "delta": event.data["text"]}

    def _reasoning(self, event: Wire) -> Iterable[dict[str, Json]]:
        if not self._speaker.says(event) or not event.data["text"]:
            return
        yield from self._message_over()
        if not self._thought:
            self._thought = f"{self._ours}-{event.seq}"
            yield {"type": "REASONING_START", "messageId": self._thought}
            yield {"type": "REASONING_MESSAGE_START", "messageId": self._thought, "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._thought, "delta": event.data["text"]}

    def _request(self, event: Wire) -> Iterable[dict[str, Json]]:
        if self._speaker.says(event):
            self._turn = ""
        return ()

    def _response(self, event: Wire) -> Iterable[dict[str, Json]]:
        if self._speaker.says(event):
            yield from self._quiet()

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

    def _call(self, event: Wire) -> Iterable[dict[str, Json]]:
        if not self._speaker.calls(event):
            return
        yield from self._quiet()
        # Ids of calls come again in the next run of a thread, but one thread's messages have to tell them apart.
        id = self._calls[event.actor + event.id] = f"{self._ours}-{event.id}-{event.seq}"
        started = {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": event.data["tool"]}
        if self._speaker.is_agent:  # all calls of a model's turn are of one message, be there text in it or not
            self._turn = self._turn or f"{self._ours}-{event.seq}-turn"
            started["parentMessageId"] = self._turn
        yield started
        if event.data.get("arguments"):
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": event.data["arguments"]}
        yield {"type": "TOOL_CALL_END", "toolCallId": id}

    def _result(self, event: Wire) -> Iterable[dict[str, Json]]:
        id = self._calls.pop(event.actor + event.id, None)
        if id is None:
            return
        content = event.data.get("error") or event.data.get("result", "")
        yield {
            "type": "TOOL_CALL_RESULT",
            "messageId": f"{self._ours}-{event.seq}",
            "toolCallId": id,
            "content": content,
            "role": "tool",
        }

    def _entered(self, event: Wire) -> Iterable[dict[str, Json]]:
        item = event.data.get("item")
        step = event.data["node"] if item is None else f"{event.data['node']}[{item}]"
        if step in self._steps.values():  # a node of a child graph that is called the same
            step = f"{step} ({event.actor})"
        self._steps[event.actor] = step
        yield {"type": "STEP_STARTED", "stepName": step}

    def _exited(self, event: Wire) -> Iterable[dict[str, Json]]:
        step = self._steps.pop(event.actor, None)
        if step is not None:
            yield {"type": "STEP_FINISHED", "stepName": step}

    def _asked(self, event: Wire) -> Iterable[dict[str, Json]]:
        yield _custom("callboard.question", event.data["question"])

    def _closed(self, event: Wire) -> Iterable[dict[str, Json]]:
        by = event.data.get("by") or event.data.get("reason", "")
        yield _custom("callboard.question_closed", {"id": event.id, "by": by})

    def _warned(self, event: Wire) -> Iterable[dict[str, Json]]:
        yield _custom("callboard.warning", event.data)

    def _ended(self, event: Wire) -> Iterable[dict[str, Json]]:
        outcome = event.data["outcome"]
        yield from self._quiet()
        for step in self._steps.values():
            yield {"type": "STEP_FINISHED", "stepName": step}
        self._steps = {}
        if event.kind == "run.cancelled":
            yield {"type": "RUN_FINISHED", **self._ids, "outcome": {"type": "cancelled"}}
            return
        if outcome["output"] and not self._speaker.is_agent:
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


_TELL = {
    "run.started": Agui._started,  # noqa: SLF001 - the table of this class
    "llm.request": Agui._request,  # noqa: SLF001 - the class's own table
    "llm.delta": Agui._delta,  # noqa: SLF001 - the class's own table
    "llm.reasoning": Agui._reasoning,  # noqa: SLF001 - the class's own table
    "llm.response": Agui._response,  # noqa: SLF001 - the class's own table
    "tool.call.started": Agui._call,  # noqa: SLF001 - the class's own table
    "tool.call.finished": Agui._result,  # noqa: SLF001 - the class's own table
    "node.entered": Agui._entered,  # noqa: SLF001 - the class's own table
    "node.exited": Agui._exited,  # noqa: SLF001 - the class's own table
    "question.asked": Agui._asked,  # noqa: SLF001 - the class's own table
    "question.answered": Agui._closed,  # noqa: SLF001 - the class's own table
    "question.expired": Agui._closed,  # noqa: SLF001 - the class's own table
    "run.warning": Agui._warned,  # noqa: SLF001 - the class's own table
    "run.finished": Agui._ended,  # noqa: SLF001 - the class's own table
    "run.failed": Agui._ended,  # noqa: SLF001 - the class's own table
    "run.cancelled": Agui._ended,  # noqa: SLF001 - the class's own table
}


def _custom(name: str, value: Json) -> dict[str, Json]:
    return {"type": "CUSTOM", "name": name, "value": value}


def _milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000) if moment else 0


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
