"""Tool calls that the client executes: a run ends by handing them out, and this module remembers that run.

The client's next request holds the assistant's last message and the tools' results. It lacks the calls that the agent
has made here in between, and the data that a provider wants back together with a call. So these are remembered, for
as long as there is room; where they are not, the run goes on from the client's request alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from .....protocol.chat import AssistantTurn, ToolCall, ToolTurn, Turn
from .....protocol.session_turns import same_beginning
from ....work.agent.history import INTERRUPTED

MOST_BYTES = 32 * 1024 * 1024
_EACH = 1024
"""Bytes that a run takes beside its text, so that many short ones are bounded as well."""


class HandedOut(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has left to its client.

    Attributes:
        calls: those to play; their ids are unique among all runs.
        turns: what was said in the run, the calls included; empty if that can't be told from what was said before.
    """

    calls: tuple[ToolCall, ...]
    turns: tuple[Turn, ...] = ()


def handed_out(run: str, said: Sequence[Turn], before: Sequence[Turn], *, one: bool = False) -> HandedOut | None:
    """What a run that is done has left to its client; None if it has answered.

    Args:
        said: all of the conversation; calls without a result are marked as interrupted.
        before: how it began.
        one: hand out the first call only; the model is shown no other.
    """
    at = max((index for index, turn in enumerate(said) if isinstance(turn, AssistantTurn)), default=-1)
    last = said[at] if at >= 0 else None
    if not isinstance(last, AssistantTurn):
        return None
    after = [turn for turn in said[at + 1 :] if isinstance(turn, ToolTurn)]
    unplayed = {turn.call for turn in after if turn.error and turn.content == INTERRUPTED}
    for_client = [call for call in last.tool_calls if call.id in unplayed]
    if not for_client:
        return None
    short = run.removeprefix("run-")
    names = {call.id: f"call_{short}_{number}" for number, call in enumerate(for_client[: 1 if one else None])}
    kept = tuple(
        msgspec.structs.replace(call, id=names.get(call.id, call.id))
        for call in last.tool_calls
        if call.id in names or call.id not in unplayed
    )
    results = [turn for turn in after if turn.call not in unplayed]
    whole = (*said[:at], msgspec.structs.replace(last, tool_calls=kept), *results)
    ours = set(names.values())
    return HandedOut(
        calls=tuple(call for call in kept if call.id in ours),
        turns=whole[len(before) :] if same_beginning(before, said) else (),
    )


class Remembered:
    """Runs that wait for their client's tools, the newest of them, by whom and by their first call."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[HandedOut, int]] = OrderedDict()
        self._bytes = 0

    def keep(self, subject: str, handed: HandedOut) -> None:
        """Remember it, and forget the oldest that there is no room for."""
        if not handed.turns:
            return
        size = _EACH + len(msgspec.json.encode(handed))
        self._kept[subject, handed.calls[0].id] = handed, size
        self._bytes += size
        while self._bytes > MOST_BYTES:
            _, (_, gone) = self._kept.popitem(last=False)
            self._bytes -= gone

    def find(self, subject: str, call: str) -> HandedOut | None:
        """The run that this call has ended; None if it was dropped."""
        found = self._kept.get((subject, call))
        return None if found is None else found[0]
