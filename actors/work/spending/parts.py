"""Usage of a remote child of a run."""

from __future__ import annotations

import msgspec

from ....protocol.outcome import Usage
from .accounts import Amount


class PartUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a remote child; `models` by model id."""

    models: dict[str, Usage] = {}
    turns: int = 0
    tool_calls: int = 0

    @property
    def amount(self) -> Amount:
        """Total tokens and cost."""
        tokens = sum(used.input_tokens + used.output_tokens for used in self.models.values())
        return Amount(tokens, sum(used.cost for used in self.models.values()))
