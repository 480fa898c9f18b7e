"""Conversation history of an agent's run: the earlier turns, and the receiver of the whole conversation.

An interrupted conversation is stored in a form that a model understands: a call without a result gets the result that
it was interrupted. Without any new text of the model, nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from ....protocol.chat import AssistantTurn, ToolTurn, Turn, UserTurn
from ....protocol.errors import ResultInvalid
from ....protocol.json_values import UnfitValue
from ....protocol.requests import Overrides
from ....supervisors.user_code import user_code

if TYPE_CHECKING:
    from ..results import ResultType
    from .todo import TodoList

INTERRUPTED = "interrupted: this call did not come to its end"


@final
class History:
    """Earlier turns and the outcome of one run.

    Args:
        turns: the turns before the run.
        keep: called with the whole conversation, once, when the run is over.
        overrides: options that override the agent's file.
        todos: the agent's existing todo list; None for a new one.
        result: the type of the run's result; None for any text.

    Attributes:
        value: the result, once the run has one.
        has_value: True if the run has a result.
        is_left: returns True if another process continues the run and will deliver the conversation.
    """

    def __init__(
        self,
        turns: Sequence[Turn] = (),
        keep: Callable[[Sequence[Turn]], None] | None = None,
        overrides: Overrides | None = None,
        todos: TodoList | None = None,
        result: ResultType | None = None,
    ) -> None:
        self.turns = tuple(turns)
        self.overrides = overrides or Overrides()
        self.todos = todos
        self.result = result
        self.value: Any = None
        self.has_value = False
        self.is_left: Callable[[], bool] = _never
        self._keep = keep

    @property
    def waits_for_the_model(self) -> bool:
        """True if the history ends with results of tools, so that the model continues without a prompt."""
        return bool(self.turns) and isinstance(self.turns[-1], ToolTurn)

    def take_result(self, text: str) -> None:
        """Parse the final text, if the run has a result type.

        Raises:
            ResultInvalid: the text does not fit the type.
        """
        if self.result is None:
            return
        try:
            self.value = self.result.read(text)
        except UnfitValue as misfit:
            raise invalid(text, misfit) from misfit
        self.has_value = True

    def over(self, messages: Sequence[Turn], said: str = "") -> None:
        """Deliver the conversation of a finished run; `said` is the text of an unfinished reply."""
        if self._keep is None or self.is_left():
            return
        whole = [*_mended(messages), *([AssistantTurn(said)] if said else [])]
        if self._is_more(whole):
            with user_code:
                self._keep(whole)

    def _is_more(self, whole: Sequence[Turn]) -> bool:
        """Return True if the run added a reply or a result of a call.

        Compaction may have shortened the list meanwhile.
        """
        # By identity: an equal turn that the run added is new.
        known = {id(turn) for turn in self.turns}
        answered = {turn.call for turn in self.turns if isinstance(turn, ToolTurn)}
        return any(
            turn.call not in answered if isinstance(turn, ToolTurn) else isinstance(turn, AssistantTurn)
            for turn in whole
            if id(turn) not in known
        )

    def pair(self, prompt: str, output: str) -> None:
        """Deliver prompt and output of a finished run without its own conversation."""
        if self._keep is not None and not self.is_left():
            with user_code:
                self._keep([*self.turns, UserTurn(prompt), AssistantTurn(output)])


def invalid(text: str, misfit: UnfitValue) -> ResultInvalid:
    """Return the error of a run whose answer does not fit the type of its result."""
    return ResultInvalid(f"the answer does not fit the type of the run's result: {misfit}\nThe answer was:\n{text}")


def _never() -> bool:
    return False


def _mended(messages: Sequence[Turn]) -> list[Turn]:
    """Return the messages with a result for each of the last reply's calls."""
    whole = list(messages)
    at = max((index for index, turn in enumerate(whole) if isinstance(turn, AssistantTurn)), default=None)
    if at is not None and isinstance(last := whole[at], AssistantTurn):
        answered = {turn.call for turn in whole[at:] if isinstance(turn, ToolTurn)}
        whole += [
            ToolTurn(call.id, call.name, INTERRUPTED, error=True) for call in last.tool_calls if call.id not in answered
        ]
    return whole
