"""What a part of a run has used that was played elsewhere."""

from __future__ import annotations

import msgspec

from ....protocol.outcome import Usage
from .accounts import Amount


class PartUsage(msgspec.Struct, frozen=True, kw_only=True):
    """See the module; `models` by their ids."""

    models: dict[str, Usage] = {}
    turns: int = 0
    tool_calls: int = 0

    @property
    def amount(self) -> Amount:
        """All of it."""
        tokens = sum(used.input_tokens + used.output_tokens for used in self.models.values())
        return Amount(tokens, sum(used.cost for used in self.models.values()))
