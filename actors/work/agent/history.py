"""Conversation history of an agent's run: the earlier turns, the receiver of the whole conversation, and compaction.

An interrupted conversation is stored in a form that a model understands: a call without a result gets the result that
it was interrupted. Without a new reply of the model or a new result of a call, nothing is stored.

**Compaction** shortens a conversation that grows too long, and reports one that cannot be shortened enough. The bound
is `compression_threshold` tokens, or 80 % of the model's window where that is known (`max_input_tokens`). Without
either, nothing is ever shortened. Once the next request would exceed the bound, each of these steps is done at most
once before it (`Compaction.step`), and only if it is worth its price:

    SumUp       a summary by the model replaces the older turns, if that saves a fifth of the request; the todo list
                follows it word for word, since the summary may get it wrong
    CutResults  if the request still exceeds 70 % of the bound: results that the model has already read are cut to
                their beginning and end, the oldest first, down to 50 % of the bound; the whole result is
                stored in a file (`tools/stored_results`)
    DoesNotFit  the request still exceeds the window, after a less effective summary where that would suffice, and
                after cutting results that the model has not read yet

A summary is requested only if the turns that it replaces have grown by a fifth of the request since the last one. A
summary that changes nothing is therefore not requested again, neither in this run nor in the next turn of a session.
Compaction never separates a call from its result. If the summary fails, the conversation continues without it, with a
warning, until the older turns are twice as long.

The token count is the provider's count for the last request, plus an estimate for later changes. The estimate is a
quarter of the characters, scaled by the error that earlier counts revealed. Before the first count, a request is
treated as too large only if the conversation alone, without system prompt and tools, exceeds the window by half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, final

import msgspec

from ....protocol.chat import (
    AssistantTurn,
    ChatRequest,
    TextPart,
    TokenUsage,
    ToolTurn,
    Turn,
    UserTurn,
    parts_of,
    text_of,
)
from ....protocol.errors import ResultInvalid, WindowReached
from ....protocol.json_values import UnfitValue
from ....protocol.requests import Overrides
from ....supervisors.user_code import user_code
from ..tools.tool import shortened
from ..tools.tool import text_of as as_text

if TYPE_CHECKING:
    from ..results import ResultType
    from .todo import TodoList


INTERRUPTED = "interrupted: this call did not come to its end"


@final
class History:
    """Earlier turns and the outcome of one run.

    Args:
        turns: the turns before the run.
        keep: called with the whole conversation when the run is over; see `over` and `pair`.
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
        """Pass the conversation of a finished run to `keep`; `said` is the text of an unfinished reply.

        Nothing is passed if the run added neither a reply nor a result of a call, or if another process continues it.
        """
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
        """Pass the earlier turns, `prompt` and `output` to `keep`, for a run without a conversation of its own."""
        if self._keep is not None and not self.is_left():
            with user_code:
                self._keep([*self.turns, UserTurn(prompt), AssistantTurn(output)])


def invalid(text: str, misfit: UnfitValue) -> ResultInvalid:
    """Return the error of a run whose answer does not match the type of its result."""
    return ResultInvalid(
        f"no answer of the model matches the type of the run's result: {misfit}\nMake the type (`result=`) more "
        f"lenient, or use another model. The last answer was:\n{text}"
    )


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


KEEP_LAST = 6
"""Number of last turns that stay unchanged, where the agent's `compression_keep_last` sets none."""

PART = 0.8
"""Share of a model's window that a conversation may fill before it is shortened."""

SUMMARIZER = """\
You shorten the record of a conversation between a user and an agent that works with tools. Write what the agent needs \
to go on without the record: the user's wishes in full, what was done and with which result, decisions and their \
reasons, file paths, names, numbers and error texts that still matter, and what is left to do. No preamble."""

HEAD = "[Summary of the conversation so far; its older turns are no longer here]"

RECORD = 400_000
"""Maximum characters for the summarizing model, where its window is unknown."""

CUT_HEAD, CUT_TAIL = 800, 400
"""Characters kept of a result that is cut. A result of less than twice their sum is not cut."""

_TURN_LIMIT = 8_000
_SHORTEST_SUMMARY = 2_000
_NOTICEABLE = 0.2
_NEEDS_ROOM = 0.7
_ROOM = 0.5
_LEAST_IN_NEED = 0.01
_UNSURE = 1.5
_RATES = (0.5, 4.0)


def is_summary(turn: Turn) -> bool:
    """Return True if the turn is a summary of older turns."""
    return isinstance(turn, UserTurn) and text_of(turn.content).startswith(HEAD)


class SumUp(msgspec.Struct, frozen=True):
    """Compaction step: replace the first `cut` turns by a summary."""

    cut: int


class CutResults(msgspec.Struct, frozen=True):
    """Compaction step: cut the tool results at these indexes to their beginning and end."""

    places: tuple[int, ...]


class DoesNotFit(msgspec.Struct, frozen=True):
    """Compaction step that reports a failure: the request exceeds the model's window.

    Attributes:
        tokens: estimated size of the request.
        fixed: the part of `tokens` outside of the conversation: system prompt and tools.
    """

    tokens: int
    fixed: int


Step = SumUp | CutResults | DoesNotFit


class Compaction:
    """Decides about the compaction of one conversation. It sends no request and writes no file.

    Args:
        threshold: tokens of a request above which the conversation is shortened; the window, if that is smaller.
        keep_last: number of last turns that stay unchanged.
        window: tokens of the model's window; None if unknown.
        fixed: tokens sent with the conversation each time: system prompt, tools.

    Attributes:
        tokens: size of the request when the last step was decided.
    """

    def __init__(
        self, threshold: int, keep_last: int | None = None, *, window: int | None = None, fixed: int = 0
    ) -> None:
        self.tokens = 0
        self._bound = threshold if window is None else min(threshold, window)
        self._keep = KEEP_LAST if keep_last is None else keep_last
        self._window = window
        self._fixed = fixed
        self._rate = 1.0  # Tokens counted by the provider per estimated token.
        self._counted: float = fixed  # Tokens of the first `_at` turns, and of the fixed part of the request.
        self._estimated = 0  # Estimated tokens of those turns alone.
        self._at = 0
        self._measured = False
        self._shortening = False  # A step was already taken for the next request.
        self._summed_up = False
        self._refused = 0  # Estimated tokens of turns for which a summary failed, doubled.

    def count(self, usage: TokenUsage, messages: Sequence[Turn]) -> None:
        """Correct the estimates by the provider's token count for `messages`, which end with the model's reply."""
        sent = self._estimated + estimate(messages[self._at : -1])
        replied = estimate(messages[-1:])
        if usage.input_tokens:
            lowest, highest = _RATES
            # Clamp the rate, so that one odd count does not distort all later estimates.
            self._rate = min(max(usage.input_tokens / max(1, self._fixed + sent), lowest), highest)
            self._counted = usage.input_tokens + self._rate * replied
            self._measured = True
        else:
            self._counted += self._rate * (sent - self._estimated + replied)
        self._estimated, self._at = sent + replied, len(messages)
        self._shortening = self._summed_up = False

    def size(self, messages: Sequence[Turn]) -> int:
        """Return the estimated tokens of a request with these turns."""
        return int(self._counted + self._rate * estimate(messages[self._at :]))

    def step(self, messages: Sequence[Turn]) -> Step | None:
        """Return the next step before these turns are sent; None to send them as they are."""
        size = self.tokens = self.size(messages)
        # The lower limit applies only within one compaction, so that a request just below the bound is left alone.
        if size <= (self._bound * _NEEDS_ROOM if self._shortening else self._bound):
            return None
        cut = self._older(messages)
        gain = self._gain(messages, cut)
        if not self._summed_up and gain >= _NOTICEABLE * size:
            return self._sum_up(cut)
        # Results before the last reply have been read by the model; cutting later ones loses unread text.
        read = 1 + max((i for i, turn in enumerate(messages) if isinstance(turn, AssistantTurn)), default=-1)
        if places := self._cuttable(messages, range(read), size - int(_ROOM * self._bound)):
            self._shortening = True
            return CutResults(places)
        excess = 0 if self._window is None else size - self._window
        if self._window is None or excess <= 0:
            return None
        if not self._summed_up and gain >= max(excess, _LEAST_IN_NEED * self._window):
            return self._sum_up(cut)
        if places := self._cuttable(messages, range(read, len(messages)), excess):
            return CutResults(places)
        # Without a count by the provider the estimate may be wrong by half: send the request and let the provider
        # decide.
        if not self._measured and estimate(messages) <= _UNSURE * self._window:
            return None
        return DoesNotFit(size, size - int(self._rate * estimate(messages)))

    def shorten(self, messages: list[Turn], cut: int, summary: str, pinned: str) -> int:
        """Replace the first `cut` turns of the list by the summary, and return the summary's estimated tokens.

        Args:
            pinned: text that follows the summary word for word (the todo list); "" for none.
        """
        text = shortened(summary, max(_SHORTEST_SUMMARY, self._bound))
        said = UserTurn(f"{HEAD}\n{text}" + (f"\n\n[Todo list]\n{pinned}" if pinned else ""))
        self._replace(messages, slice(0, cut), [said])
        return int(self._rate * estimate([said]))

    def cut(self, messages: list[Turn], places: Sequence[int], files: Sequence[str]) -> None:
        """Cut these results of the list to their beginning and end.

        `files` are the paths with the whole texts, one for each result; "" if the text is not stored.
        """
        for place, file in zip(places, files, strict=True):
            turn = messages[place]
            assert isinstance(turn, ToolTurn)
            parted = msgspec.structs.replace(turn, content=_beginning_and_end(turn, file))
            self._replace(messages, slice(place, place + 1), [parted])

    def failed(self, messages: Sequence[Turn], cut: int) -> None:
        """Record that the summary failed: it is requested again only when these turns have doubled in length."""
        self._refused = 2 * estimate(messages[:cut])

    def _sum_up(self, cut: int) -> SumUp:
        self._shortening = self._summed_up = True
        return SumUp(cut)

    def _older(self, messages: Sequence[Turn]) -> int:
        """Return the number of first turns that may be summarized; 0 if there are too few."""
        cut = max(0, len(messages) - max(1, self._keep))
        # The first kept turn must not be the result of a call that is removed.
        while cut > 0 and isinstance(messages[cut], ToolTurn):
            cut -= 1
        return cut if cut >= 2 else 0

    def _gain(self, messages: Sequence[Turn], cut: int) -> float:
        """Return the tokens that a summary of the first turns is expected to save."""
        older = estimate(messages[:cut])
        if not cut or older < self._refused:
            return 0
        first = messages[0]
        summary = estimate([first]) if is_summary(first) else min(older // 8, self._bound // 4)
        return self._rate * (older - summary)

    def _cuttable(self, messages: Sequence[Turn], among: Iterable[int], tokens: int) -> tuple[int, ...]:
        """Return the results to cut in order to save so many tokens, the oldest first.

        Returns all candidates if they do not suffice.
        """
        places: list[int] = []
        for place in among:
            turn = messages[place]
            if tokens <= 0:
                break
            if isinstance(turn, ToolTurn) and (length := len(text_of(turn.content))) > 2 * (CUT_HEAD + CUT_TAIL):
                places.append(place)
                tokens -= int(self._rate * (length - CUT_HEAD - CUT_TAIL) / 4)
        return tuple(places)

    def _replace(self, messages: list[Turn], there: slice, by: list[Turn]) -> None:
        """Replace turns and update the counts."""
        start, stop = there.start, there.stop
        known = min(stop, self._at)
        if start < known:
            more = estimate(by) - estimate(messages[start:known])
            self._counted += self._rate * more
            self._estimated += more
            self._at += len(by) - (known - start)
        messages[there] = by


def summary_request(model: str, turns: Sequence[Turn], limit: int = RECORD) -> ChatRequest:
    """Return the request for a summary of these turns, whose text is shortened to `limit` characters."""
    record = shortened("\n\n".join(turn_as_text(turn) for turn in turns), limit)
    return ChatRequest(model=model, system=SUMMARIZER, messages=(UserTurn(record),))


def too_large(agent: str, model: str, window: int, found: DoesNotFit) -> WindowReached:
    """Return the error for a conversation that does not fit."""
    talk = found.tokens - found.fixed
    return WindowReached(
        f"the conversation of '{agent}' does not fit into the context window of {model or 'its model'}: "
        f"about {found.tokens} tokens, and at most {window} fit (system prompt and tools {found.fixed}, "
        f"messages {talk}). Older turns are already summarised and results of tools already cut as far as "
        "possible. Use a model with a larger window, send less at once, or offer fewer tools; if the model "
        "has a larger window, set its `max_input_tokens` in config.yaml"
    )


def estimate(turns: Iterable[Turn]) -> int:
    """Return the estimated tokens of these turns: a quarter of their characters."""
    return sum(_characters(turn) for turn in turns) // 4


def _characters(turn: Turn) -> int:
    if isinstance(turn, AssistantTurn):
        return len(turn.text) + sum(len(as_text(call.arguments)) + len(call.name) for call in turn.tool_calls)
    return len(text_of(turn.content))


def turn_as_text(turn: Turn) -> str:
    """Return a turn as text for the summarizing model."""
    if isinstance(turn, UserTurn):
        return f"USER: {shortened(text_of(turn.content), _TURN_LIMIT)}"
    if isinstance(turn, AssistantTurn):
        calls = [f"CALL {call.name} {shortened(as_text(call.arguments), 1_000)}" for call in turn.tool_calls]
        return "\n".join(part for part in (f"AGENT: {shortened(turn.text, _TURN_LIMIT)}", *calls) if part)
    return f"RESULT of {turn.name}: {shortened(text_of(turn.content), _TURN_LIMIT)}"


def _beginning_and_end(turn: ToolTurn, file: str) -> str:
    text = text_of(turn.content)
    left_out = f"{len(text) - CUT_HEAD - CUT_TAIL} characters"
    if others := sum(1 for part in parts_of(turn.content) if not isinstance(part, TextPart)):
        left_out += f" and {others} images or files"
    where = f"; the whole text is in {file}" if file else ""
    return f"{text[:CUT_HEAD]}\n[... {left_out} left out{where} ...]\n{text[-CUT_TAIL:]}"
