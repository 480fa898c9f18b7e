"""What was said before an agent's run, and who wants to know what was said in it.

A conversation that was interrupted is kept as far as it makes sense to a model: calls without a result are told to have
been interrupted. If the model has said nothing at all, there is nothing new to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

from ....protocol.chat import AssistantTurn, ToolTurn, Turn, UserTurn
from ....protocol.requests import Overrides
from ....supervisors.user_code import user_code

if TYPE_CHECKING:
    from .todo import TodoList

INTERRUPTED = "interrupted: this call did not come to its end"


@final
class History:
    """See the module.

    Args:
        turns: what was said before.
        keep: told the whole conversation, once, when the run is over.
        overrides: what goes before the file of the agent.
        todos: the agent's todo list, which it goes on with; None for a new one.

    Attributes:
        is_left: whether the run is left to another process, which will tell the conversation when it is over.
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
        self.is_left: Callable[[], bool] = _never
        self._keep = keep

    @property
    def waits_for_the_model(self) -> bool:
        """Whether it ends with results of tools, so that it goes on without a prompt."""
        return bool(self.turns) and isinstance(self.turns[-1], ToolTurn)

    def over(self, messages: Sequence[Turn], said: str = "") -> None:
        """The run is over; `said` is what the model had said of a reply that did not come to its end."""
        if self._keep is None or self.is_left():
            return
        whole = [*_mended(messages), *([AssistantTurn(said)] if said else [])]
        if self._is_more(whole):
            with user_code:
                self._keep(whole)

    def _is_more(self, whole: Sequence[Turn]) -> bool:
        """Whether the model has said something, or calls have come to results. It may have been shortened meanwhile."""
        known = {id(turn) for turn in self.turns}
        answered = {turn.call for turn in self.turns if isinstance(turn, ToolTurn)}
        return any(
            turn.call not in answered if isinstance(turn, ToolTurn) else isinstance(turn, AssistantTurn)
            for turn in whole
            if id(turn) not in known
        )

    def pair(self, prompt: str, output: str) -> None:
        """A run without a conversation of its own is over."""
        if self._keep is not None and not self.is_left():
            with user_code:
                self._keep([*self.turns, UserTurn(prompt), AssistantTurn(output)])


def _never() -> bool:
    return False


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
