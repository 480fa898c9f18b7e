"""Usage of a run, by model and by node, and of its remote children."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ....protocol.chat import CASSETTE, TokenUsage
from ....protocol.events import UsageUpdate
from ....protocol.outcome import Usage
from ....protocol.requests import Limits
from .accounts import Account, Amount, by_flag

if TYPE_CHECKING:
    from .book import SpendingBook


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


_NOTHING = Usage()
"""Stands in for the usage of a node if a request belongs to none."""

_PREPARED = f"{CASSETTE}:"


class Meter:
    """Counter of a run's usage, per model and per node.

    Args:
        limits: limits of the run.
        owner: see the attributes.
        book: book that stores the usage by day; None for none.
        day: account of the subject's day; None if no limit of a day applies.

    Attributes:
        owner: subject that owns the run.
        keeps_book: True if the usage is stored by day.
        account: account of the run; that of the day if the run has no limits; None if nothing is limited.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        allow_unpriced: bool = False,
        owner: str = "",
        book: SpendingBook | None = None,
        day: Account | None = None,
    ) -> None:
        self.limits = limits
        self.account: Account | None = day
        if limits.of_models:
            self.account = Account("the run", limits, day, key=by_flag, allow_unpriced=allow_unpriced)
        self.owner = owner
        self._book = book
        self.keeps_book: bool = book is not None
        self.turns: int = 0
        self.tool_calls: int = 0
        self.models: dict[str, Usage] = {}
        self.nodes: dict[str, Usage] = {}

    def add(self, model: str, tokens: TokenUsage, cost: float | None, node: str | None, agent: str = "") -> UsageUpdate:
        """Count a turn: one reply of a model to an agent. Return the totals of that model."""
        self.turns += 1
        return self.count(model, tokens, cost, node, agent)

    def restore(self, model: str, tokens: TokenUsage, cost: float | None) -> None:
        """Count a turn of an earlier incarnation of the run, and charge the run's account.

        That incarnation has already added the turn to the book and charged it to the day.
        """
        book, self._book = self._book, None
        self.add(model, tokens, cost, None)
        self._book = book
        if self.account is not None and self.limits.of_models:
            self.account.charge(Amount(tokens.input_tokens + tokens.output_tokens, cost or 0.0), 1)

    def take_in(self, part: PartUsage) -> list[UsageUpdate]:
        """Count the usage of a remote child, which the spending book already contains, and charge no account.

        Return the totals of all models of this run.
        """
        self.turns += part.turns
        self.tool_calls += part.tool_calls
        for model, used in part.models.items():
            usage = self.models.setdefault(model, Usage())
            usage.input_tokens += used.input_tokens
            usage.output_tokens += used.output_tokens
            usage.cost += used.cost
            usage.priced = usage.priced and used.priced
        return self.totals()

    def restore_part(self, part: PartUsage) -> None:
        """Count a remote child that ended in an earlier incarnation of the run, and charge the run's account."""
        self.take_in(part)
        if self.account is not None and self.limits.of_models:
            # Only the run's own account: the worker of the child has charged the day.
            self.account.charge(part.amount, part.turns)

    def totals(self) -> list[UsageUpdate]:
        """Return the usage so far, by model."""
        return [
            UsageUpdate(
                model=model,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost=usage.cost,
                priced=usage.priced,
            )
            for model, usage in self.models.items()
        ]

    def count(
        self, model: str, tokens: TokenUsage, cost: float | None, node: str | None = None, agent: str = ""
    ) -> UsageUpdate:
        """Count a request that is not a turn, such as one for embeddings. Return the totals of its model.

        Args:
            cost: None if the price is not known.
        """
        # Replies of a cassette cost nothing now. Their tokens are shown, but do not belong in the book.
        if self._book is not None and not model.startswith(_PREPARED):
            self._book.add(self.owner, agent, model, tokens, cost)
        usage = self.models.get(model)
        if usage is None:
            usage = self.models[model] = Usage()
        of_node = _NOTHING if node is None else self.nodes.setdefault(node, Usage())
        for total in (usage,) if node is None else (usage, of_node):
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
