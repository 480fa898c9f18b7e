"""One run for a client, from the call to its result.

A call may take several requests of the client's: from 2026-07-28 on, a question ends the request, and the client calls
again with the answer. So the run is an actor of its own, and requests wait in `news` for its next question or its
end. Between two requests the run is *parked*: it works on where it can, and is cancelled if no request comes back
for it.

Its progress comes from the run's events. Its questions come by the service's policy (see `service`), which holds them
for us.
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
from ....protocol.kernel.questions import Question
from ....protocol.outcome import Outcome
from ....supervisors import Actor
from ....supervisors.bus import Listener
from ....supervisors.escalation import Desk
from .elicitation import answer
from .offers import Offer

Json = Any

NOTE = 200
"""Characters of a progress message at most."""


class Call:
    """See the module.

    Attributes:
        offer: the agent that runs.
        asks: whether the client's user can be asked.
        questions: what the run waits to be told, by id, oldest first.
        ended: whether the run is over; `result` then is what became of it, None if it was cancelled by us.
        on_progress: called with the number of steps so far, and the next one; None without listener.
    """

    def __init__(self, offer: Offer, desk: Desk, *, asks: bool, began: Callable[[str, Call], None]) -> None:
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
        """Body of the call's actor: `run`, given who hears its events, to its end."""
        try:
            with self._scope:
                self.result = await run(self._heard)
        except CallboardError as error:
            self.result = error
        except Exception as crash:  # the caller gets it too; the server goes on
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
        """Wait until the run has ended, or its questions are others than before. One task at a time waits."""
        await self._news.wait()
        self._news = trio.Event()

    # --- its questions --------------------------------------------------------------------------------------

    def ask(self, question: Question) -> None:
        """The run has a question."""
        self.questions[question.id] = question
        self._news.set()

    def answer(self, question_id: str, result: Mapping[str, Json]) -> None:
        """The user's answer. If it is none, the question goes on to the next policy."""
        question = self.questions.pop(question_id, None)
        if question is None:
            return  # withdrawn meanwhile
        value = answer(question, result)
        if value is None:
            self._desk.pass_on(question_id)
        else:
            self._desk.answer(question_id, value, by="mcp client")

    def expire(self, question_id: str, seconds: float) -> None:
        """The user did not answer for so long."""
        if self.questions.pop(question_id, None) is not None:
            self._desk.expire(question_id, seconds)

    # --- its events -----------------------------------------------------------------------------------------

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
        """The `CallToolResult`."""
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
"""The fields of an outcome that clients get; the state may hold private data."""


def tool_result(text: str, structured: Json = None, *, failed: bool = False) -> dict[str, Json]:
    """A `CallToolResult`."""
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
