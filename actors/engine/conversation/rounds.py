"""Decider for the tool calls of a model's turn: selects calls to run, orders them, and builds the results for the
model.

Each call results in a `ToolTurn` that the model reads: the tool's result, or the error. A call fails if the tool is
unknown, or if its arguments are not JSON or do not fit the schema. It also fails on a denied permission, a
repetition, a timeout, or a failure of the tool. None of these ends the conversation. A limit of the run and the
shutdown of the root end it (`_ENDS_ALL`), after the other calls of the round have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....protocol.chat import Content, ToolCall, ToolTurn
from ....protocol.effects import CallTool, Effect, Emit
from ....protocol.events import ToolFinished, ToolStarted
from ....protocol.messages import Failure, ToolDone, WorkFailed
from ...work.tools.calls import EVENT_LIMIT
from ...work.tools.checking import LONGEST_NAME, MOST_CALLS, Checks, Misfit, Offer, RepeatGuard, unknown
from ...work.tools.tool import Json, shortened, text_of

ORDERED = "ordered"
"""Lane of calls that run one after another."""

_ENDS_ALL = {
    "BudgetReached",
    "TurnsReached",
    "ShuttingDown",
    "JournalError",
    "UnknownOutcome",
    "HookRefused",
    "ToolRaised",
}


class Rounds:
    """Decider for the calls of one conversation, one round after another.

    Args:
        tools: the callable tools, by name.
        unlisted: tools that the model can call without an offer.
        guard: detects repeated calls.
        result_limit: most characters of one result.

    Attributes:
        played: number of calls that reached a tool.
        key: key of the conversation's last work.
    """

    def __init__(
        self, tools: Mapping[str, Offer], unlisted: Mapping[str, Offer], guard: RepeatGuard, result_limit: int
    ) -> None:
        self.played = 0
        self.key = 0
        self._tools = tools
        self._unlisted = unlisted
        self._guard = guard
        self._limit = result_limit
        self._checks = Checks()
        self._calls: Sequence[ToolCall] = ()
        self._running: dict[int, int] = {}  # key of the work -> index of the call
        self._results: dict[int, tuple[Content, bool]] = {}
        self._ending: dict[int, Failure] = {}

    def copy(self) -> Rounds:
        """Return a copy with the same call history; valid only between two rounds."""
        copied = Rounds(self._tools, self._unlisted, self._guard.copy(), self._limit)
        copied.key, copied.played = self.key, self.played
        return copied

    def renew(self, tools: Mapping[str, Offer], unlisted: Mapping[str, Offer]) -> None:
        """Replace the callable tools."""
        self._tools = tools
        self._unlisted = unlisted
        self._checks.clear()

    def is_for_caller(self, call: ToolCall) -> bool:
        """Return True if the run's caller executes this call."""
        tool = self._tools.get(call.name)
        return tool is not None and tool.elsewhere

    @property
    def running(self) -> bool:
        """True if calls of this round have no result yet."""
        return bool(self._running)

    def begin(self, calls: Sequence[ToolCall], *, heard: bool) -> list[Effect]:
        """Begin a round: return an effect per accepted call, and events of the refusals if `heard`."""
        self._calls = calls
        self._results = {}
        self._ending = {}
        effects: list[Effect] = []
        looked_at: set[tuple[str, str]] = set()
        for number, call in enumerate(calls):
            decided = self._decided(number, call, looked_at)
            if isinstance(decided, CallTool):
                effects.append(decided)
            else:
                self._refuse(number, decided, effects if heard else [])
        return effects

    def on(self, message: ToolDone | WorkFailed) -> None:
        """Record the end of a call."""
        number = self._running.pop(message.key)
        if isinstance(message, ToolDone):
            self._results[number] = (message.content, False)
            return
        if not _ENDS_ALL.isdisjoint(message.failure.kinds):
            self._ending[number] = message.failure
        told = result_of_failure(message.failure, self._calls[number].name)
        self._results[number] = (shortened(text_of(told), self._limit), True)

    @property
    def ending(self) -> Failure | None:
        """Failure that ends the conversation, from the first such call of the round."""
        # The first in the order of the calls, not of their ends, so that replay selects the same failure.
        return self._ending[min(self._ending)] if self._ending else None

    def turns(self) -> list[ToolTurn]:
        """Return the results of the round, in the order of its calls."""
        return [
            ToolTurn(call=call.id, name=call.name, content=content, error=failed)
            for number, call in enumerate(self._calls)
            for content, failed in [self._results[number]]
        ]

    def _decided(self, number: int, call: ToolCall, looked_at: set[tuple[str, str]]) -> CallTool | dict[str, Json]:
        if number >= MOST_CALLS:
            return _refused(f"more than {MOST_CALLS} calls at once")
        tool = self._tools.get(call.name) or self._unlisted.get(call.name)
        if tool is None:
            return _refused(unknown(call.name, self._tools, self._unlisted))
        try:
            arguments = self._checks.arguments(tool, call)
        except Misfit as misfit:
            return _refused(str(misfit))
        # Calls that wait for others (`agent__collect`) repeat legitimately, so the guard ignores them.
        if not tool.waits:
            seen = (call.name, text_of(call.arguments))
            if seen not in looked_at:  # identical calls within one turn count once
                looked_at.add(seen)
                alert = self._guard.alert(call)
                if alert is not None:
                    assert isinstance(alert, dict)
                    return alert
        self.played += 1
        self.key += 1
        self._running[self.key] = number
        name, lane = tool.spec.name, ORDERED if tool.ordered else None
        return CallTool(key=self.key, name=name, lane=lane, call=call.id, tool=call.name, arguments=arguments)

    def _refuse(self, number: int, why: dict[str, Json], effects: list[Effect]) -> None:
        call, text = self._calls[number], text_of(why)
        self._results[number] = (shortened(text, self._limit), True)
        name = shortened(call.name, LONGEST_NAME)
        arguments, error = shortened(text_of(call.arguments), EVENT_LIMIT), shortened(text, EVENT_LIMIT)
        tool = self._tools.get(call.name) or self._unlisted.get(call.name)
        origin = "builtin" if tool is None else tool.origin
        effects.append(Emit(ToolStarted(tool=name, arguments=arguments, origin=origin), id=call.id))
        effects.append(Emit(ToolFinished(tool=name, seconds=0.0, error=error, code="refused"), id=call.id))


def result_of_failure(failure: Failure, name: str) -> dict[str, Json]:
    if "WorkCancelled" in failure.kinds:
        return _refused(f"Tool call '{name}' {failure.text.removeprefix('it ')}")
    if "WorkCrashed" in failure.kinds:
        return _refused(f"Tool call '{name}' crashed: {failure.text}")
    told = _refused(failure.text)
    if "ToolFailed" in failure.kinds:
        for key in ("stderr", "output"):
            if failure.attributes.get(key):
                told[key] = failure.attributes[key].rstrip()
    return told


def _refused(why: str) -> dict[str, Json]:
    return {"tool_call_error": why}
