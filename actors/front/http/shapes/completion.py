"""`/v1/completions`: its request, its replies, and the mapping of a run's events to its own.

The names of events are those of Loki's plan. They are a projection: the full stream is that of the run's own events
(`/v1/runs/{run}/events`), whose numbers are the ids of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from .....protocol import events as ev
from .....protocol.control.bounds import MOST, Json, Name, Path, Text
from .....protocol.events import Event
from .....protocol.events.decode import decode
from ....views.activity import Activity
from ....views.run_view import RunView
from ...control.logs.reading import LoggedEvent

Told = tuple[str, dict[str, Json]]
"""The name of an event, and its data."""

Prompt = Annotated[Text, Meta(description="What is said.")]


class FileGiven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file to put before the prompt: an absolute `path` on the server (scope `run:files`), or a `url`."""

    path: Path | None = None
    url: Path | None = None


class SessionCompletionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt into a session.

    Attributes:
        stream: tell what happens as it happens (SSE), not only what came of it; so does `Accept: text/event-stream`.
        temperature: goes before what an agent's own file says.
        auto_continue: whether an agent goes on by itself while its todo list has open items; its own file says so
            where this is left out.
        timeout: seconds after which the run is ended.
    """

    prompt: Prompt
    model: Path | None = None
    stream: bool = False
    files: Annotated[list[FileGiven], Meta(max_length=MOST)] = []
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    auto_continue: bool | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None


class CompletionRequest(SessionCompletionRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prompt that no session keeps: to `agent`, else to the model itself, in a `role` if one is named."""

    agent: Name | None = None
    role: Name | None = None


class ToolCallTold(msgspec.Struct, kw_only=True):
    """A tool call: its arguments and its result as text, both without their middle where they are long."""

    id: str
    name: str
    args: str = ""
    result: str = ""
    is_error: bool = False


class UsageTold(msgspec.Struct, kw_only=True):
    """Tokens as providers counted them; `cost` in USD, as far as prices are known: `priced` says whether all are."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    priced: bool = True


class CompletionReply(msgspec.Struct, kw_only=True):
    """What came of a prompt."""

    request_id: str
    run: str
    session_id: str | None = None
    final_message: str = ""
    tool_calls: list[ToolCallTold] = []
    turns: int = 0
    compressed: bool = False
    autonamed: str | None = None
    auto_continued: int = 0
    usage: UsageTold = msgspec.field(default_factory=UsageTold)


class Completion:
    """Folds a run's events into a reply, and tells them on the way.

    Attributes:
        reply: what came of it so far.
        error: what the run failed with, once it has: `code` and `message`.
    """

    def __init__(self, request_id: str, run: str, session: str | None) -> None:
        self.reply = CompletionReply(request_id=request_id, run=run, session_id=session)
        self.error: tuple[str, str] | None = None
        self._view = RunView()
        self._calls: dict[Activity, ToolCallTold] = {}
        self._said = ""
        self._spoke = False

    def take(self, logged: LoggedEvent) -> list[Told]:
        """What there is to tell of an event."""
        event = decode(logged.data)
        return [] if event is None else list(self._tell(event, self._view.see(event).about))

    def rounded_off(self, *, compressed: bool, autonamed: str | None) -> list[Told]:
        """The session was shortened, or a model has named it, which changes the last events."""
        told: list[Told] = []
        if compressed:
            self.reply.compressed = True
            told += [("session_compressing", {}), ("session_compressed", {})]
        if autonamed is not None:
            self.reply.autonamed = autonamed
            told.append(("session_autonamed", {"name": autonamed}))
        return told

    def _tell(self, event: Event, about: Activity | None) -> Iterator[Told]:
        reply, speaks = self.reply, self._view.speaks(event)
        match event.data:
            case ev.RunStarted():
                yield "started", {"request_id": reply.request_id, "session_id": reply.session_id, "run": reply.run}
            case ev.LlmDelta(text=text) if speaks:
                self._said += text
                self._spoke = True
                yield "assistant_delta", {"text": text}
            case ev.LlmResponse() if speaks and self._said:
                yield "assistant_message_end", {"full_text": self._said}
                self._said = ""
            case ev.ToolStarted(tool=tool, arguments=arguments) if about is not None and self._view.calls_itself(event):
                call = self._calls[about] = ToolCallTold(id=event.id, name=tool, args=arguments)
                reply.tool_calls.append(call)
                yield "tool_call", {"id": call.id, "name": call.name, "args": call.args}
            case ev.ToolFinished(error=error, result=result) if about in self._calls:
                call = self._calls.pop(about)
                call.is_error, call.result = error is not None, error or result
                told = {"id": call.id, "name": call.name, "result": call.result, "is_error": call.is_error}
                yield "tool_result", told
            case ev.AgentContinued(count=count, most=most, open=open):
                reply.auto_continued += 1
                yield "auto_continue_triggered", {"count": count, "max": most, "remaining_todos": open}
            case ev.HistoryCompacted(tokens=tokens, tokens_now=now) if speaks:
                reply.compressed = True
                yield "session_compressing", {}
                yield "session_compressed", {"tokens_saved": tokens - now}
            case ev.Warned(message=message, code=code):
                yield "warning", {"message": message, "code": code}
            case ev.QuestionAsked(question=question):
                message = f"a question waits for an answer: {question['text']}"
                yield "info", {"message": message, "question": question}
            case ev.RunFinished() | ev.RunFailed() | ev.RunCancelled():
                yield from self._ended(event.kind, self._view.outcome or {})

    def _ended(self, kind: str, outcome: dict[str, Json]) -> Iterator[Told]:
        reply, view = self.reply, self._view
        reply.turns = outcome["turns"]
        reply.usage = UsageTold(
            input_tokens=view.input_tokens, output_tokens=view.output_tokens, cost=view.cost, priced=view.priced
        )
        if kind != "run.cancelled":  # one that has failed may have reached its end all the same
            reply.final_message = outcome["output"]
            if reply.final_message and not (view.is_agent and self._spoke):  # of a worker's run pieces may be lost
                yield "assistant_delta", {"text": reply.final_message}
                yield "assistant_message_end", {"full_text": reply.final_message}
        if kind == "run.failed":
            self.error = outcome["error"]["code"], outcome["error"]["message"]
        elif kind == "run.cancelled":
            self.error = "cancelled", "the run was cancelled"
        if self.error is not None:
            yield "error", {"code": self.error[0], "message": self.error[1]}
        yield "finished", {"outcome": self._finished(outcome["status"])}

    def _finished(self, status: str) -> dict[str, Json]:
        reply = self.reply
        return {
            "status": status,
            "final_message": reply.final_message,
            "turns": reply.turns,
            "tool_calls": len(reply.tool_calls),
            "compressed": reply.compressed,
            "auto_continued": reply.auto_continued,
            "usage": msgspec.to_builtins(reply.usage),
        }
