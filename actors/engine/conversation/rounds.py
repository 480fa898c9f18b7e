"""The calls of a model's turn, decided: which are played, in which order, and what the model reads of each.

Whatever comes of a call becomes a `ToolTurn` that the model reads: the result; or what is wrong with the call (no
such tool, arguments that are no JSON or don't fit the tool's schema), that it may not be made, that it was made too
often, that it took too long, that the tool failed or crashed. Nothing of that ends the conversation. What does: a limit
of the run that was reached, and the root's end; the other calls end first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....protocol.chat import Content, ToolCall, ToolTurn
from ....protocol.effects import CallTool, Effect, Emit
from ....protocol.events import ToolFinished, ToolStarted
from ....protocol.failure import Failure
from ....protocol.messages import ToolDone, WorkFailed
from ...work.tools.calls import EVENT_LIMIT
from ...work.tools.checking import LONGEST_NAME, MOST_CALLS, Checks, Misfit, Offer, RepeatGuard, unknown
from ...work.tools.tool import Json, shortened, text_of

ORDERED = "ordered"
"""The lane of calls that are played one after another."""

_ENDS_ALL = {"BudgetReached", "TurnsReached", "ShuttingDown", "JournalError", "UnknownOutcome", "HookRefused"}


class Rounds:
    """Decides about the calls of one conversation, a round of them after the other.

    Args:
        tools: what may be called, by name.
        unlisted: what may be called though the model is not offered it.
        guard: notices circles.
        result_limit: characters of one result.

    Attributes:
        played: how many calls came to a tool.
        key: of the last work that was asked for, in this conversation.
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
        self._running: dict[int, int] = {}  # key of the work -> number of the call
        self._results: dict[int, tuple[Content, bool]] = {}
        self._ending: dict[int, Failure] = {}

    def copy(self) -> Rounds:
        """Another that remembers the same calls; between two rounds."""
        copied = Rounds(self._tools, self._unlisted, self._guard.copy(), self._limit)
        copied.key, copied.played = self.key, self.played
        return copied

    def renew(self, tools: Mapping[str, Offer], unlisted: Mapping[str, Offer]) -> None:
        """From now on these may be called."""
        self._tools = tools
        self._unlisted = unlisted
        self._checks.clear()

    def elsewhere(self, call: ToolCall) -> bool:
        """Whether the caller of the run plays it."""
        tool = self._tools.get(call.name)
        return tool is not None and tool.elsewhere

    @property
    def running(self) -> bool:
        """Whether calls of this round have no result yet."""
        return bool(self._running)

    def begin(self, calls: Sequence[ToolCall], *, heard: bool) -> list[Effect]:
        """A new round: play these calls, or refuse them."""
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
        """A call has ended."""
        number = self._running.pop(message.key)
        if isinstance(message, ToolDone):
            self._results[number] = (message.content, False)
            return
        if not _ENDS_ALL.isdisjoint(message.failure.kinds):
            self._ending[number] = message.failure
        told = _told(message.failure, self._calls[number].name)
        self._results[number] = (shortened(text_of(told), self._limit), True)

    @property
    def ending(self) -> Failure | None:
        """The failure of a call that ends the conversation."""
        return self._ending[min(self._ending)] if self._ending else None

    def turns(self) -> list[ToolTurn]:
        """What came of the round's calls, in their order."""
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
        if not tool.waits:
            seen = (call.name, text_of(call.arguments))
            if seen not in looked_at:  # the same call several times in one turn counts once
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
        effects.append(Emit(ToolStarted(tool=name, arguments=arguments), id=call.id))
        effects.append(Emit(ToolFinished(tool=name, seconds=0.0, error=error, code="refused"), id=call.id))


def _told(failure: Failure, name: str) -> dict[str, Json]:
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
