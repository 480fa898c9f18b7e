"""Shortens a conversation that grows too long, as far as that achieves something, and says when nothing does.

The bound is `compression_threshold` tokens, or else four fifths of the model's window where the settings tell it
(`max_input_tokens`); without either nothing is ever shortened. Once the next request would be over the bound, at most
one of each is done before it (`Compaction.step`), and each only if it is worth its price:

    SumUp       the older turns give way to a summary that the model writes, if that takes away a fifth of the request;
                the todo list stands behind it word for word, since the summary may get it wrong
    CutResults  a request that is still over seven tenths of the bound consists of the turns that are kept: of the
                results that the model has read, the oldest first, only beginning and end stay, until half of the bound
                is left; the whole result goes into a file (`tools/kept_results`)
    DoesNotFit  it is over the window all the same, after a smaller summary too, if that would have been enough, and
                with the results cut that the model has not read yet

So a summary is asked for only if what it takes the place of has grown by a fifth of the request since the
last one, which stands in front of it: one that changes nothing is not asked for
again, in this run or in the next turn of a session. It never parts a call from its result. When the summary can't be
had, the conversation goes on without, with a warning, until the older turns are twice as many.

Tokens are what the provider counted for the last request, and the estimate of what has come and gone since: a quarter
of the characters, times what the count has shown that rule to be wrong by. Before anything was counted, a request is
called too large only if the conversation alone, without system prompt and tools, is so by half as much again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from ....protocol.errors import WindowReached
from ..tools.tool import shortened
from ..tools.tool import text_of as as_text

KEEP_LAST = 6
"""Turns that stay as they are, where the agent's `compression_keep_last` says no other number."""

PART = 0.8
"""Share of a model's window that a conversation may have before it is shortened."""

SUMMARIZER = """\
You shorten the record of a conversation between a user and an agent that works with tools. Write what the agent needs \
to go on without the record: the user's wishes in full, what was done and with which result, decisions and their \
reasons, file paths, names, numbers and error texts that still matter, and what is left to do. No preamble."""

HEAD = "[Summary of the conversation so far; its older turns are no longer here]"

RECORD = 400_000
"""Characters that the summarizing model reads, where its window is not known."""

CUT_HEAD, CUT_TAIL = 800, 400
"""Characters that stay of a result that is cut. One of less than twice as many is not worth it."""

_TURN_LIMIT = 8_000
_SHORTEST_SUMMARY = 2_000
_NOTICEABLE = 0.2
_NEEDS_ROOM = 0.7
_ROOM = 0.5
_LEAST_IN_NEED = 0.01
_UNSURE = 1.5
_RATES = (0.5, 4.0)


def is_summary(turn: Turn) -> bool:
    """Whether it stands for older turns."""
    return isinstance(turn, UserTurn) and text_of(turn.content).startswith(HEAD)


class SumUp(msgspec.Struct, frozen=True):
    """The first `cut` turns are to give way to a summary."""

    cut: int


class CutResults(msgspec.Struct, frozen=True):
    """Of the results at these places, only beginning and end are to stay."""

    places: tuple[int, ...]


class DoesNotFit(msgspec.Struct, frozen=True):
    """A request of so many tokens, `fixed` of which are none of the conversation's, is over the window."""

    tokens: int
    fixed: int


Step = SumUp | CutResults | DoesNotFit


class Compaction:
    """See the module.

    Args:
        threshold: tokens from which on the conversation is shortened.
        keep_last: turns that stay.
        window: tokens that the model takes in; None if that is not known.
        fixed: tokens of what is sent with the conversation each time: system prompt, tools.

    Attributes:
        tokens: how many the request had when the last step was found.
    """

    def __init__(
        self, threshold: int, keep_last: int | None = None, *, window: int | None = None, fixed: int = 0
    ) -> None:
        self.tokens = 0
        self._bound = threshold if window is None else min(threshold, window)
        self._keep = KEEP_LAST if keep_last is None else keep_last
        self._window = window
        self._fixed = fixed
        self._rate = 1.0  # tokens that the provider counts for one that is estimated
        self._counted: float = fixed  # tokens of the first `_at` turns, and of what is sent with them
        self._estimated = 0  # those turns alone, by estimate
        self._at = 0
        self._measured = False
        self._shortening = False  # something was done for the request that comes next
        self._summed_up = False
        self._refused = 0  # the estimate of the turns that no summary was to be had of

    def count(self, usage: TokenUsage, messages: Sequence[Turn]) -> None:
        """The model has replied, which ends `messages`: learn what its provider has counted."""
        sent = self._estimated + estimate(messages[self._at : -1])
        replied = estimate(messages[-1:])
        if usage.input_tokens:
            lowest, highest = _RATES
            self._rate = min(max(usage.input_tokens / max(1, self._fixed + sent), lowest), highest)
            self._counted = usage.input_tokens + self._rate * replied
            self._measured = True
        else:
            self._counted += self._rate * (sent - self._estimated + replied)
        self._estimated, self._at = sent + replied, len(messages)
        self._shortening = self._summed_up = False

    def size(self, messages: Sequence[Turn]) -> int:
        """Tokens of a request with these turns."""
        return int(self._counted + self._rate * estimate(messages[self._at :]))

    def step(self, messages: Sequence[Turn]) -> Step | None:
        """What is to be done before these turns are sent; None for nothing more."""
        size = self.tokens = self.size(messages)
        if size <= (self._bound * _NEEDS_ROOM if self._shortening else self._bound):
            return None
        cut = self._older(messages)
        gain = self._gain(messages, cut)
        if not self._summed_up and gain >= _NOTICEABLE * size:
            return self._sum_up(cut)
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
        if not self._measured and estimate(messages) <= _UNSURE * self._window:
            return None
        return DoesNotFit(size, size - int(self._rate * estimate(messages)))

    def shorten(self, messages: list[Turn], cut: int, summary: str, pinned: str) -> int:
        """Put the summary in the place of the first turns; returns how many tokens it has.

        Args:
            pinned: what stands behind the summary word for word (the todo list); "" for nothing.
        """
        text = shortened(summary, max(_SHORTEST_SUMMARY, self._bound))
        said = UserTurn(f"{HEAD}\n{text}" + (f"\n\n[Todo list]\n{pinned}" if pinned else ""))
        self._replace(messages, slice(0, cut), [said])
        return int(self._rate * estimate([said]))

    def cut(self, messages: list[Turn], places: Sequence[int], files: Sequence[str]) -> None:
        """Leave only beginning and end of these results; `files` are where the whole ones are, "" for nowhere."""
        for place, file in zip(places, files, strict=True):
            turn = messages[place]
            assert isinstance(turn, ToolTurn)
            parted = msgspec.structs.replace(turn, content=_beginning_and_end(turn, file))
            self._replace(messages, slice(place, place + 1), [parted])

    def failed(self, messages: Sequence[Turn], cut: int) -> None:
        """There is no summary of these turns to be had: not asked again before they are twice as long."""
        self._refused = 2 * estimate(messages[:cut])

    def _sum_up(self, cut: int) -> SumUp:
        self._shortening = self._summed_up = True
        return SumUp(cut)

    def _older(self, messages: Sequence[Turn]) -> int:
        """How many of the first turns are not among those that stay; 0 if too few to sum up."""
        cut = max(0, len(messages) - max(1, self._keep))
        while cut > 0 and isinstance(messages[cut], ToolTurn):  # what stands first is no result of a call that went
            cut -= 1
        return cut if cut >= 2 else 0

    def _gain(self, messages: Sequence[Turn], cut: int) -> float:
        """Tokens that a summary of the first turns is likely to take away."""
        older = estimate(messages[:cut])
        if not cut or older < self._refused:
            return 0
        first = messages[0]
        summary = estimate([first]) if is_summary(first) else min(older // 8, self._bound // 4)
        return self._rate * (older - summary)

    def _cuttable(self, messages: Sequence[Turn], among: Iterable[int], tokens: int) -> tuple[int, ...]:
        """The results to cut so that so many tokens less remain, the oldest first; all there are if that is too few."""
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
        """Put others in the place of turns, and count them."""
        start, stop = there.start, there.stop
        known = min(stop, self._at)
        if start < known:
            more = estimate(by) - estimate(messages[start:known])
            self._counted += self._rate * more
            self._estimated += more
            self._at += len(by) - (known - start)
        messages[there] = by


def summary_request(model: str, turns: Sequence[Turn], limit: int = RECORD) -> ChatRequest:
    """What is asked of the model that writes the summary of these turns, of which it reads so many characters."""
    record = shortened("\n\n".join(told(turn) for turn in turns), limit)
    return ChatRequest(model=model, system=SUMMARIZER, messages=(UserTurn(record),))


def too_large(agent: str, model: str, window: int, found: DoesNotFit) -> WindowReached:
    """What the user reads of a conversation that does not fit."""
    talk = found.tokens - found.fixed
    return WindowReached(
        f"the conversation of '{agent}' does not fit the window of {model or 'its model'}: about {found.tokens} tokens "
        f"of at most {window} (system prompt and tools {found.fixed}, messages {talk}), with its older turns summed up "
        "and results of tools cut as far as that helps. Use a model with a larger window, say less at once, or offer "
        "fewer tools; if the model takes more than that, say so in its `max_input_tokens` in config.yaml"
    )


def estimate(turns: Iterable[Turn]) -> int:
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


def _beginning_and_end(turn: ToolTurn, file: str) -> str:
    text = text_of(turn.content)
    left_out = f"{len(text) - CUT_HEAD - CUT_TAIL} characters"
    if others := sum(1 for part in parts_of(turn.content) if not isinstance(part, TextPart)):
        left_out += f" and {others} images or files"
    where = f"; the whole text is in {file}" if file else ""
    return f"{text[:CUT_HEAD]}\n[... {left_out} left out{where} ...]\n{text[-CUT_TAIL:]}"
