"""Shortens a conversation that comes near its model's window: older turns give way to a summary.

The bound is `compression_threshold` tokens, or else four fifths of the model's window where the settings tell it
(`max_input_tokens`); without either nothing is ever shortened. Tokens are those that the provider counted last, or a
quarter of the characters where it counts none. The last turns stay as they are, never cut between a call and its
result; the model writes the summary of the rest, and the todo list is put behind it word for word, since the summary
may get it wrong. When the summary can't be had, the conversation goes on as it is, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....protocol.chat import AssistantTurn, ChatRequest, TokenUsage, ToolTurn, Turn, UserTurn, text_of
from ....protocol.errors import BudgetReached, ModelError, TurnsReached
from ....protocol.events import HistoryCompacted, Warned
from ..tools.rendering import shortened
from ..tools.rendering import text_of as as_text

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..context import RunContext

KEEP_LAST = 6
"""Turns that stay as they are, where the agent's `compression_keep_last` says no other number."""

PART = 0.8
_TURN_LIMIT = 8_000

SUMMARIZER = """\
You shorten the record of a conversation between a user and an agent that works with tools. Write what the agent needs \
to go on without the record: the user's wishes in full, what was done and with which result, decisions and their \
reasons, file paths, names, numbers and error texts that still matter, and what is left to do. No preamble."""

HEAD = "[Summary of the conversation so far; its older turns are no longer here]"


class Compaction:
    """See the module.

    Args:
        agent: name of the agent, for the event.
        model: who writes the summary.
        threshold: tokens from which on the conversation is shortened.
        keep_last: turns that stay.
        pinned: what is put behind the summary word for word (the todo list); "" for nothing.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        agent: str,
        model: str,
        threshold: int,
        keep_last: int | None = None,
        pinned: Callable[[], str] = lambda: "",
        node: str | None = None,
    ) -> None:
        self._context = context
        self._agent = agent
        self._model = model
        self._threshold = threshold
        self._keep = KEEP_LAST if keep_last is None else keep_last
        self._pinned = pinned
        self._node = node
        self._counted = 0
        self._at = 0

    def count(self, usage: TokenUsage, messages: Sequence[Turn]) -> None:
        """Learn how many tokens the conversation has, the last reply included."""
        self._counted = usage.input_tokens + usage.output_tokens or estimate(messages)
        self._at = len(messages)

    async def shorten(self, me: Actor, messages: list[Turn]) -> None:
        """Shorten the history in place, if it is too long and long enough to be shortened."""
        tokens = self._counted + estimate(messages[self._at :])
        cut = self._cut(messages) if tokens > self._threshold else 0
        if cut < 2:
            return
        try:
            summary = await self._summary(me, messages[:cut])
        except (BudgetReached, TurnsReached):
            raise
        except ModelError as error:
            text = f"the conversation of '{self._agent}' could not be shortened and goes on as it is: {error}"
            me.emit(Warned(code="not_compacted", message=text, node=self._node))
            self._threshold = 2 * tokens
            return
        pinned = self._pinned()
        text = f"{HEAD}\n{summary}" + (f"\n\n[Todo list]\n{pinned}" if pinned else "")
        messages[:cut] = [UserTurn(text)]
        self._counted, self._at = estimate(messages), len(messages)
        me.emit(
            HistoryCompacted(agent=self._agent, turns=cut, tokens=tokens, summary_tokens=estimate([UserTurn(text)]))
        )

    def _cut(self, messages: Sequence[Turn]) -> int:
        """How many turns go: all but the last ones; who then stands first is not the result of a call that went."""
        cut = max(0, len(messages) - max(1, self._keep))
        while cut > 0 and isinstance(messages[cut], ToolTurn):
            cut -= 1
        return cut

    async def _summary(self, me: Actor, turns: Sequence[Turn]) -> str:
        record = "\n\n".join(told(turn) for turn in turns)
        request = ChatRequest(model=self._model, system=SUMMARIZER, messages=(UserTurn(record),))
        reply = await self._context.chat(me, request, node=self._node, need_text=True)
        return reply.text.strip()


def estimate(turns: Sequence[Turn]) -> int:
    """Tokens of these turns, roughly: a quarter of their characters."""
    return sum(_characters(turn) for turn in turns) // 4


def _characters(turn: Turn) -> int:
    if isinstance(turn, AssistantTurn):
        return len(turn.text) + sum(len(as_text(call.arguments)) + len(call.name) for call in turn.tool_calls)
    return len(text_of(turn.content))


def told(turn: Turn) -> str:
    """A turn in the record that the summarizing model reads."""
    if isinstance(turn, UserTurn):
        return f"USER: {shortened(text_of(turn.content), _TURN_LIMIT)}"
    if isinstance(turn, AssistantTurn):
        calls = [f"CALL {call.name} {shortened(as_text(call.arguments), 1_000)}" for call in turn.tool_calls]
        return "\n".join(part for part in (f"AGENT: {shortened(turn.text, _TURN_LIMIT)}", *calls) if part)
    return f"RESULT of {turn.name}: {shortened(text_of(turn.content), _TURN_LIMIT)}"
