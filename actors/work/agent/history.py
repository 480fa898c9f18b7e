"""What was said before an agent's run, and who wants to know what was said in it.

A conversation that was interrupted is kept as far as it makes sense to a model: calls without a result are told to have
been interrupted. If the model has said nothing at all, there is nothing new to keep.

A conversation that comes near its model's window is shortened (`Compaction`): older turns give way to a summary.

The bound is `compression_threshold` tokens, or else four fifths of the model's window where the settings tell it
(`max_input_tokens`); without either nothing is ever shortened. Tokens are those that the provider counted last, or a
quarter of the characters where it counts none. The last turns stay as they are, never cut between a call and its
result; the model writes the summary of the rest, and the todo list is put behind it word for word, since the summary
may get it wrong. When the summary can't be had, the conversation goes on as it is, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

from ....protocol.chat import AssistantTurn, ChatRequest, TokenUsage, ToolTurn, Turn, UserTurn, text_of
from ....protocol.requests import Overrides
from ..tools.tool import shortened
from ..tools.tool import text_of as as_text

if TYPE_CHECKING:
    from .todo import TodoList

INTERRUPTED = "interrupted: this call did not come to its end"

KEEP_LAST = 6
"""Turns that stay as they are, where the agent's `compression_keep_last` says no other number."""

PART = 0.8
_TURN_LIMIT = 8_000

SUMMARIZER = """\
You shorten the record of a conversation between a user and an agent that works with tools. Write what the agent needs \
to go on without the record: the user's wishes in full, what was done and with which result, decisions and their \
reasons, file paths, names, numbers and error texts that still matter, and what is left to do. No preamble."""

HEAD = "[Summary of the conversation so far; its older turns are no longer here]"


@final
class History:
    """See the module.

    Args:
        turns: what was said before.
        keep: told the whole conversation, once, when the run is over.
        overrides: what goes before the file of the agent.
        todos: the agent's todo list, which it goes on with; None for a new one.
    """

    def __init__(
        self,
        turns: Sequence[Turn] = (),
        keep: Callable[[Sequence[Turn]], None] | None = None,
        overrides: Overrides | None = None,
        todos: TodoList | None = None,
    ) -> None:
        self.turns = tuple(turns)
        self.overrides = overrides or Overrides()
        self.todos = todos
        self._keep = keep

    @property
    def waits_for_the_model(self) -> bool:
        """Whether it ends with results of tools, so that it goes on without a prompt."""
        return bool(self.turns) and isinstance(self.turns[-1], ToolTurn)

    def over(self, messages: Sequence[Turn], said: str = "") -> None:
        """The run is over; `said` is what the model had said of a reply that did not come to its end."""
        if self._keep is None:
            return
        whole = [*_mended(messages), *([AssistantTurn(said)] if said else [])]
        if any(not isinstance(turn, UserTurn) for turn in whole[len(self.turns) :]):
            self._keep(whole)

    def pair(self, prompt: str, output: str) -> None:
        """A run without a conversation of its own is over."""
        if self._keep is not None:
            self._keep([*self.turns, UserTurn(prompt), AssistantTurn(output)])


def _mended(messages: Sequence[Turn]) -> list[Turn]:
    """The messages with a result for each of the last turn's calls."""
    whole = list(messages)
    at = max((index for index, turn in enumerate(whole) if isinstance(turn, AssistantTurn)), default=None)
    if at is not None and isinstance(last := whole[at], AssistantTurn):
        answered = {turn.call for turn in whole[at:] if isinstance(turn, ToolTurn)}
        whole += [
            ToolTurn(call.id, call.name, INTERRUPTED, error=True) for call in last.tool_calls if call.id not in answered
        ]
    return whole


class Compaction:
    """Decides when a history is to be shortened, and does it once there is a summary.

    Args:
        threshold: tokens from which on the conversation is shortened.
        keep_last: turns that stay.

    Attributes:
        tokens: how many the history had when `cut` was last asked.
    """

    def __init__(self, threshold: int, keep_last: int | None = None) -> None:
        self.tokens = 0
        self._threshold = threshold
        self._keep = KEEP_LAST if keep_last is None else keep_last
        self._counted = 0
        self._at = 0

    def count(self, usage: TokenUsage, messages: Sequence[Turn]) -> None:
        """Learn how many tokens the conversation has, the last reply included."""
        self._counted = usage.input_tokens + usage.output_tokens or estimate(messages)
        self._at = len(messages)

    def cut(self, messages: Sequence[Turn]) -> int:
        """How many of the oldest turns are to give way to a summary; 0 if none: it is not too long, or too short."""
        self.tokens = self._counted + estimate(messages[self._at :])
        if self.tokens <= self._threshold:
            return 0
        cut = max(0, len(messages) - max(1, self._keep))
        while cut > 0 and isinstance(messages[cut], ToolTurn):  # what stands first is no result of a call that went
            cut -= 1
        return cut if cut >= 2 else 0

    def shorten(self, messages: list[Turn], cut: int, summary: str, pinned: str) -> int:
        """Put the summary in the place of the first turns; returns how many tokens it has.

        Args:
            pinned: what stands behind the summary word for word (the todo list); "" for nothing.
        """
        said = UserTurn(f"{HEAD}\n{summary}" + (f"\n\n[Todo list]\n{pinned}" if pinned else ""))
        messages[:cut] = [said]
        self._counted, self._at = estimate(messages), len(messages)
        return estimate([said])

    def failed(self) -> None:
        """There is no summary to be had: not asked again before the conversation is twice as long."""
        self._threshold = 2 * self.tokens


def summary_request(model: str, turns: Sequence[Turn]) -> ChatRequest:
    """What is asked of the model that writes the summary of these turns."""
    record = "\n\n".join(told(turn) for turn in turns)
    return ChatRequest(model=model, system=SUMMARIZER, messages=(UserTurn(record),))


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
