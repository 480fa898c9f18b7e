"""Tool calls without a conversation: one round of calls, executed below an actor (`callboard call`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ....protocol.chat import ToolCall, ToolTurn
from ....protocol.effects import CallTool, Effect, Finish, Reject, Work
from ....protocol.kernel.messages import Message
from ....protocol.messages import CallsBegun, Interrupted, ToolDone, WorkFailed
from ....protocol.permissions import Permissions as Rules
from ....supervisors import Actor
from ...work.tools.calls import RESULT_LIMIT, CallPlayer
from ...work.tools.checking import AT_ROOT, MOST_CALLS, RepeatGuard
from ...work.tools.permissions import Permissions
from ...work.tools.tool import Tool
from ..driver import Driver, Performer
from .rounds import Rounds


class CallsDecider:
    """Decider of a single round of tool calls."""

    def __init__(self, rounds: Rounds) -> None:
        self.heard = True
        self._rounds = rounds

    def begin(self, request: CallsBegun) -> list[Effect]:
        """Start the calls, or refuse them."""
        effects = self._rounds.begin(request.calls, heard=self.heard)
        return effects if self._rounds.running else [*effects, *self._over()]

    def on(self, message: Message) -> list[Effect]:
        if isinstance(message, Interrupted):
            return []
        if not isinstance(message, ToolDone | WorkFailed):
            return [Reject(message, "it plays calls and reads nothing")]
        self._rounds.on(message)
        return [] if self._rounds.running else self._over()

    def remembers(self) -> tuple[object, ...]:
        return ()

    def _over(self) -> list[Effect]:
        ending = self._rounds.ending
        return [Finish(self._rounds.turns()) if ending is None else Finish(failure=ending)]


class CallRounds:
    """Executor of rounds of calls with one repeat guard; `CallPlayer` and `Rounds` document the arguments."""

    def __init__(
        self,
        tools: Iterable[Tool],
        permissions: Permissions,
        *,
        unlisted: Mapping[str, Tool] | None = None,
        own: Rules | None = None,
        guard: RepeatGuard | None = None,
        timeout: float | None = None,
        result_limit: int = RESULT_LIMIT,
    ) -> None:
        listed = {tool.name: tool for tool in tools}
        others = unlisted or {}
        self._player = CallPlayer(
            {**others, **listed}, permissions, own=own, timeout=timeout, result_limit=result_limit
        )
        self._rounds = Rounds(listed, others, guard or RepeatGuard(*AT_ROOT), result_limit)

    async def play(self, me: Actor, calls: Sequence[ToolCall]) -> list[ToolTurn]:
        """Execute these calls as children of `me`; return the results in the order of the calls.

        Raises:
            BudgetReached, TurnsReached, ShuttingDown: the run has ended.
        """
        # A recorder's second decider must start with the same call history.
        before = self._rounds.copy()
        decider = CallsDecider(self._rounds)
        performers: dict[type[Work], Performer] = {CallTool: self._player.play}
        driver = Driver(me, decider, performers, at_once=MOST_CALLS, afresh=lambda: CallsDecider(before.copy()))
        turns: list[ToolTurn] = await driver.play(CallsBegun(tuple(calls)))
        return turns
