"""What an agent has said and done so far.

Written by the agent while it works, read by whoever called it: its text survives when it fails or is cancelled.
"""

from __future__ import annotations

import msgspec

from ...protocol.errors import CallboardError
from ...protocol.outcome import ChildRecord


class Record(msgspec.Struct, kw_only=True):
    """One agent's work.

    Attributes:
        texts: what it said, one text per turn that said something.
        turns: model replies.
        tool_calls: calls that were played, whatever came of them.
        children: the agents it spawned, in order.
        failures: those that it went on over although no author has accepted them (see `graph.execute`), in order.
    """

    texts: list[str] = []
    turns: int = 0
    tool_calls: int = 0
    children: list[ChildRecord] = []
    failures: list[CallboardError] = []

    @property
    def output(self) -> str:
        """All it said, joined by newlines."""
        return "\n".join(self.texts)
