"""What a run uses, and how much it may."""

from __future__ import annotations

from ...protocol.chat import TokenUsage
from ...protocol.errors import BudgetReached, TurnsReached
from ...protocol.events import UsageUpdate
from ...protocol.outcome import Usage
from ...protocol.requests import Limits


class Meter:
    """Counts what a run uses, per model, and ends it when a limit is passed.

    A limit is checked before a request goes out: the reply that passes it is still used. Requests under way count as
    turns, so that a hundred nodes at once do not take a hundred where one is left.

    Attributes:
        needs_prices: no model may be asked whose price is not known, since money is limited.
    """

    def __init__(self, limits: Limits, *, allow_unpriced: bool = False) -> None:
        self.limits = limits
        self.needs_prices = limits.max_cost is not None and not allow_unpriced
        self.turns = 0
        self.tool_calls = 0
        self.under_way = 0
        self.models: dict[str, Usage] = {}
        self.nodes: dict[str, Usage] = {}

    def admit(self) -> None:
        """Raise `TurnsReached` or `BudgetReached` if nothing more may be asked."""
        limits = self.limits
        if limits.max_turns is not None and self.turns + self.under_way >= limits.max_turns:
            turns = "1 model turn" if limits.max_turns == 1 else f"{limits.max_turns} model turns"
            raise TurnsReached(f"the run has used its {turns} (--max-turns)")
        self.check_budget()

    def check_budget(self) -> None:
        """Raise `BudgetReached` if tokens or money are used up."""
        limits = self.limits
        tokens = sum(usage.input_tokens + usage.output_tokens for usage in self.models.values())
        if limits.max_tokens is not None and tokens >= limits.max_tokens:
            raise BudgetReached(f"the run has used {tokens} of its {limits.max_tokens} tokens (--max-tokens)")
        cost = sum(usage.cost for usage in self.models.values())
        if limits.max_cost is not None and cost >= limits.max_cost:
            raise BudgetReached(f"the run has cost {cost:.4f} of its {limits.max_cost:g} USD (--max-cost)")

    def add(self, model: str, tokens: TokenUsage, cost: float | None, node: str | None) -> UsageUpdate:
        """Count one reply; returns the totals of its model."""
        self.turns += 1
        return self.count(model, tokens, cost, node)

    def count(self, model: str, tokens: TokenUsage, cost: float | None, node: str | None = None) -> UsageUpdate:
        """Count what a request has used that is no turn, as one for vectors; returns the totals of its model.

        Args:
            cost: None if the price is not known.
        """
        usage = self.models.setdefault(model, Usage())
        of_node = Usage() if node is None else self.nodes.setdefault(node, Usage())
        for total in (usage, of_node):
            total.input_tokens += tokens.input_tokens
            total.output_tokens += tokens.output_tokens
            if cost is None:
                total.priced = False
            else:
                total.cost += cost
        return UsageUpdate(
            model=model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost=usage.cost,
            node=node,
            node_input_tokens=of_node.input_tokens,
            node_output_tokens=of_node.output_tokens,
            node_cost=of_node.cost,
            priced=usage.priced,
            node_priced=of_node.priced,
        )
