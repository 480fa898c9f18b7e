"""Transcript of an agent: its text, calls and children so far.

The agent writes it while it works, and its caller reads it: the text survives a failure or cancellation of the agent.
"""

from __future__ import annotations

import msgspec

from ...protocol.errors import CallboardError
from ...protocol.outcome import ChildRecord


class Record(msgspec.Struct, kw_only=True):
    """Transcript of one agent.

    Attributes:
        texts: its output, one text per turn with text.
        last: text of its last turn, possibly "".
        turns: number of model replies.
        tool_calls: number of executed tool calls, successful or not.
        children: the agents that it spawned, in order.
        failures: failures after which it continued although no author has accepted them (see `graph.execute`), in
            order.
    """

    texts: list[str] = []
    last: str = ""
    turns: int = 0
    tool_calls: int = 0
    children: list[ChildRecord] = []
    failures: list[CallboardError] = []

    @property
    def output(self) -> str:
        """All texts, joined by newlines."""
        return "\n".join(self.texts)
