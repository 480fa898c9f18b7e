"""`/v1/completions`: what it takes, what it gives, and how a run's events are told by it.

The names of events are those of Loki's plan. They are a projection: whoever wants all that happens reads the run's own
events (`/v1/runs/{run}/events`), whose numbers are the ids of these.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from .....protocol.control.bounds import MOST, Json, Name, Path, Text
from .speaker import Speaker
from .wire import Wire

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
    """A prompt that no session keeps: to `agent`, else to the model itself. Roles are not there yet."""

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
    """Tokens as providers counted them; `cost` in USD, 0 where unpriced."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


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
        self._speaker = Speaker()
        self._calls: dict[str, ToolCallTold] = {}
        self._said = ""

    def take(self, event: Wire) -> list[Told]:
        """What there is to tell of an event."""
        self._speaker.notice(event)
        told = _TELL.get(event.kind)
        return [] if told is None else list(told(self, event))

    def rounded_off(self, *, compressed: bool, autonamed: str | None) -> list[Told]:
        """The session was shortened, or a model has named it, which changes what is told last."""
        told: list[Told] = []
        if compressed:
            self.reply.compressed = True
            told += [("session_compressing", {}), ("session_compressed", {})]
        if autonamed is not None:
            self.reply.autonamed = autonamed
            told.append(("session_autonamed", {"name": autonamed}))
        return told

    # --- one method per kind ----------------------------------------------------------------------------------

    def _started(self, _: Wire) -> list[Told]:
        reply = self.reply
        return [("started", {"request_id": reply.request_id, "session_id": reply.session_id, "run": reply.run})]

    def _delta(self, event: Wire) -> list[Told]:
        if not self._speaker.says(event):
            return []
        self._said += event.data["text"]
        return [("assistant_delta", {"text": event.data["text"]})]

    def _response(self, event: Wire) -> list[Told]:
        if not self._speaker.says(event) or not self._said:
            return []
        said, self._said = self._said, ""
        return [("assistant_message_end", {"full_text": said})]

    def _tool_call(self, event: Wire) -> list[Told]:
        if not self._speaker.calls(event):
            return []
        call = ToolCallTold(id=event.id, name=event.data["tool"], args=event.data.get("arguments", ""))
        self._calls[event.actor + event.id] = call
        self.reply.tool_calls.append(call)
        return [("tool_call", {"id": call.id, "name": call.name, "args": call.args})]

    def _tool_result(self, event: Wire) -> list[Told]:
        call = self._calls.get(event.actor + event.id)
        if call is None:
            return []
        error = event.data.get("error")
        call.is_error = error is not None
        call.result = error or event.data.get("result", "")
        told = {"id": call.id, "name": call.name, "result": call.result, "is_error": call.is_error}
        return [("tool_result", told)]

    def _continued(self, event: Wire) -> list[Told]:
        self.reply.auto_continued += 1
        data = event.data
        return [
            (
                "auto_continue_triggered",
                {"count": data["count"], "max": data["most"], "remaining_todos": data["open"]},
            )
        ]

    def _compacted(self, event: Wire) -> list[Told]:
        if not self._speaker.says(event):
            return []
        self.reply.compressed = True
        saved = event.data["tokens"] - event.data["summary_tokens"]
        return [("session_compressing", {}), ("session_compressed", {"tokens_saved": saved})]

    def _warned(self, event: Wire) -> list[Told]:
        return [("warning", {"message": event.data["message"], "code": event.data["code"]})]

    def _asked(self, event: Wire) -> list[Told]:
        question = event.data["question"]
        return [("info", {"message": f"a question waits for an answer: {question['text']}", "question": question})]

    def _ended(self, event: Wire) -> list[Told]:
        outcome = event.data["outcome"]
        told: list[Told] = []
        reply = self.reply
        reply.turns = outcome["turns"]
        for used in outcome["usage"].values():
            reply.usage.input_tokens += used["input_tokens"]
            reply.usage.output_tokens += used["output_tokens"]
            reply.usage.cost += used["cost"]
        if event.kind != "run.cancelled":  # one that has failed may have reached its end all the same
            reply.final_message = outcome["output"]
            if not self._speaker.is_agent and reply.final_message:
                told.append(("assistant_delta", {"text": reply.final_message}))
                told.append(("assistant_message_end", {"full_text": reply.final_message}))
        if event.kind == "run.failed":
            error = outcome["error"]
            self.error = error["code"], error["message"]
            told.append(("error", {"code": error["code"], "message": error["message"]}))
        elif event.kind == "run.cancelled":
            self.error = "cancelled", "the run was cancelled"
            told.append(("error", {"code": "cancelled", "message": "the run was cancelled"}))
        return [*told, ("finished", {"outcome": self._finished(outcome["status"])})]

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


_TELL = {
    "run.started": Completion._started,  # noqa: SLF001 - the table of this class
    "llm.delta": Completion._delta,  # noqa: SLF001 - the class's own table
    "llm.response": Completion._response,  # noqa: SLF001 - the class's own table
    "tool.call.started": Completion._tool_call,  # noqa: SLF001 - the class's own table
    "tool.call.finished": Completion._tool_result,  # noqa: SLF001 - the class's own table
    "agent.continued": Completion._continued,  # noqa: SLF001 - the class's own table
    "history.compacted": Completion._compacted,  # noqa: SLF001 - the class's own table
    "run.warning": Completion._warned,  # noqa: SLF001 - the class's own table
    "question.asked": Completion._asked,  # noqa: SLF001 - the class's own table
    "run.finished": Completion._ended,  # noqa: SLF001 - the class's own table
    "run.failed": Completion._ended,  # noqa: SLF001 - the class's own table
    "run.cancelled": Completion._ended,  # noqa: SLF001 - the class's own table
}
