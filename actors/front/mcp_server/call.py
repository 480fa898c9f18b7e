"""Run for a client, from the call to its result.

A call may need several requests of the client: from 2026-07-28 on, a question ends the request, and the client calls
again with the answer. So the run is an actor of its own, and requests wait in `news` for its next question or its end.
Between two requests the run is *parked*: it works where it can, and is cancelled if no request returns for it.

Progress is derived from the run's events. Questions arrive through the service's policy (see `service`), which holds
them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import trio

from ....protocol.errors import CallboardError, RunFailed
from ....protocol.events import (
    AgentStarted,
    Event,
    EventData,
    LlmRequest,
    NodeEntered,
    QuestionAnswered,
    QuestionExpired,
    RunStarted,
    ToolStarted,
)
from ....protocol.kernel.questions import Question, yes_or_no
from ....protocol.outcome import Outcome
from ....supervisors import Actor
from ....supervisors.bus import Listener
from ....supervisors.escalation import OpenQuestions
from .offers import OfferedAgent

Json = Any

NOTE = 200
"""Maximum characters of a progress message."""


class McpToolCall:
    """Call with its run.

    Attributes:
        offer: agent that runs.
        asks: True if the client's user can be asked.
        questions: open questions by id, oldest first.
        ended: True if the run is over; `result` is then its result, None if the server cancelled it.
        on_progress: callback for the number of steps and the next one; None without a listener.
    """

    def __init__(
        self, offer: OfferedAgent, desk: OpenQuestions, *, asks: bool, began: Callable[[str, McpToolCall], None]
    ) -> None:
        self.offer = offer
        self.asks = asks
        self.questions: dict[str, Question] = {}
        self.ended = False
        self.result: Outcome | CallboardError | None = None
        self.on_progress: Callable[[int, str], None] | None = None
        self._desk = desk
        self._began = began
        self._steps = 0
        self._scope = trio.CancelScope()
        self._news = trio.Event()

    async def play(self, _: Actor, run: Callable[[Listener], Awaitable[Outcome]]) -> None:
        """Execute `run`, given a listener for its events, to its end. Body of the call's actor."""
        try:
            with self._scope:
                self.result = await run(self._heard)
        except CallboardError as error:
            self.result = error
        except Exception as crash:  # the caller gets it too, and the server continues
            self.result = RunFailed(f"'{self.offer.name}' crashed: {crash!r}")
            raise
        finally:
            self.ended = True
            self.questions.clear()
            self._news.set()

    def cancel(self) -> None:
        """Cancel the run."""
        self._scope.cancel()

    async def news(self) -> None:
        """Wait until the run has ended, or its questions have changed. Only one task may wait at a time."""
        await self._news.wait()
        self._news = trio.Event()

    # --- questions ------------------------------------------------------------------------------------------

    def ask(self, question: Question) -> None:
        """Add a question of the run."""
        self.questions[question.id] = question
        self._news.set()

    def answer(self, question_id: str, result: Mapping[str, Json]) -> None:
        """Process the user's answer. If there is none, the question passes to the next policy."""
        question = self.questions.pop(question_id, None)
        if question is None:
            return  # withdrawn meanwhile
        value = answer(question, result)
        if value is None:
            self._desk.pass_on(question_id)
        else:
            self._desk.answer(question_id, value, by="mcp client")

    def expire(self, question_id: str, seconds: float) -> None:
        """Expire a question that the user did not answer in time."""
        if self.questions.pop(question_id, None) is not None:
            self._desk.expire(question_id, seconds)

    # --- events ---------------------------------------------------------------------------------------------

    def _heard(self, event: Event) -> None:
        data = event.data
        if isinstance(data, RunStarted):
            self._began(event.run, self)
        elif isinstance(data, QuestionAnswered | QuestionExpired):
            if self.questions.pop(event.id, None) is not None:
                self._news.set()
        elif (note := _step(data)) is not None:
            self._steps += 1
            if self.on_progress is not None:
                self.on_progress(self._steps, note[:NOTE])

    def to_wire(self) -> dict[str, Json]:
        """Return the `CallToolResult`."""
        result = self.result
        if isinstance(result, Outcome):
            wire = msgspec.to_builtins(result)
            shown = {key: wire[key] for key in _SHOWN if wire[key] not in (None, [])}
            if result.error is None and result.status == "done":
                return tool_result(result.output, shown)
            reason = f"The run was {result.status}" if result.error is None else result.error.message
            return tool_result(reason, {**shown, "exit_code": result.exit_code}, failed=True)
        if isinstance(result, CallboardError):
            error = {"code": result.code, "message": str(result)}
            return tool_result(
                str(result), {"status": "failed", "error": error, "exit_code": result.exit_code}, failed=True
            )
        return tool_result("The run was cancelled.", {"status": "cancelled"}, failed=True)


_SHOWN = ("run_id", "status", "output", "usage", "priced", "turns", "tool_calls", "failures", "error")
"""Fields of an outcome that clients get; the state may contain private data."""


def tool_result(text: str, structured: Json = None, *, failed: bool = False) -> dict[str, Json]:
    """Return a `CallToolResult`."""
    result: dict[str, Json] = {"content": [{"type": "text", "text": text}]}
    if structured is not None:
        result["structuredContent"] = structured
    if failed:
        result["isError"] = True
    return result


def _step(data: EventData) -> str | None:
    if isinstance(data, NodeEntered):
        return f"node {data.node} ({data.type})"
    if isinstance(data, LlmRequest):
        return f"asks {data.model}"
    if isinstance(data, ToolStarted):
        return f"calls {data.tool}"
    if isinstance(data, AgentStarted) and data.depth > 0:
        return f"agent {data.agent}"
    return None


LISTS_SINCE = "2025-11-25"
"""First revision with form fields for several options; dates compare as text."""


def can_be_asked(question: Question) -> bool:
    """Return True if a form may ask the question."""
    return not question.secret


def takes_forms(capabilities: Mapping[str, Json]) -> bool:
    """Return True if a client with these capabilities shows forms; one that only opens URLs does not."""
    elicitation = capabilities.get("elicitation")
    return isinstance(elicitation, dict) and ("form" in elicitation or "url" not in elicitation)


def form(question: Question, version: str) -> dict[str, Json]:
    """Return the parameters of `elicitation/create`."""
    lines = [question.text, question.problem, question.rule]
    fields: dict[str, Json] = {"answer": _field(question, version)}
    required = ["answer"]
    if question.kind == "choice" and question.free and question.permission is None:
        fields["other"] = {"type": "string", "title": "In your own words", "description": "If none of them fits."}
        required = []
    return {
        "mode": "form",
        "message": "\n".join(line for line in lines if line),
        "requestedSchema": {"type": "object", "properties": fields, "required": required},
    }


def _field(question: Question, version: str) -> dict[str, Json]:
    options, default = list(question.options), question.default
    if question.permission is not None and "no" in options:
        default = "no"  # a form submitted without reading allows nothing
    if question.kind == "confirm":
        return {"type": "boolean"} | ({} if default is None else {"default": yes_or_no(default) == "yes"})
    if question.kind == "choice" and options:
        return {"type": "string", "enum": options} | ({"default": default} if default in options else {})
    if question.kind == "checkbox" and version >= LISTS_SINCE:
        return {"type": "array", "items": {"type": "string", "enum": options}}
    if question.kind == "checkbox":
        return {"type": "string", "description": f"Any of these, separated by commas: {', '.join(options)}"}
    return {"type": "string"} | ({} if default is None else {"default": default})


def answer(question: Question, result: Mapping[str, Json]) -> str | list[str] | None:
    """Return the answer in an `ElicitResult`; None if the user gave none.

    Declining a question that can be answered with no means no.
    """
    content = result.get("content")
    if result.get("action") != "accept":
        can_say_no = question.kind == "confirm" or question.permission is not None
        return "no" if can_say_no and result.get("action") == "decline" else None
    if not isinstance(content, dict):
        return None
    value = content.get("other") or content.get("answer")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if question.kind == "checkbox" and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list):
        return [str(item) for item in value]
    if isinstance(value, str | int | float):
        return str(value)
    return "" if value is None else None
