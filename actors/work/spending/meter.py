"""What a run uses, and how much it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.chat import TokenUsage
from ....protocol.events import UsageUpdate
from ....protocol.outcome import Usage
from ....protocol.requests import Limits
from .accounts import Account, Amount, by_flag
from .parts import PartUsage

if TYPE_CHECKING:
    from .book import Book

_NOTHING = Usage()
"""Of no node."""


class Meter:
    """Counts what a run uses, per model and per node.

    Args:
        limits: what it may use.
        owner: see the attributes.
        book: where what it uses is kept by day; None for nowhere.
        day: what its subject may spend today; None if that is not limited.

    Attributes:
        owner: the subject whose run it is.
        account: the run's, or where it has no limits that of the day; None where nothing is limited.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        allow_unpriced: bool = False,
        owner: str = "",
        book: Book | None = None,
        day: Account | None = None,
    ) -> None:
        self.limits = limits
        self.account: Account | None = day
        if limits.of_models:
            self.account = Account("the run", limits, day, key=by_flag, allow_unpriced=allow_unpriced)
        self.owner = owner
        self._book = book
        self.turns = 0
        self.tool_calls = 0
        self.models: dict[str, Usage] = {}
        self.nodes: dict[str, Usage] = {}

    @property
    def keeps_book(self) -> bool:
        """Whether what is used is kept by day."""
        return self._book is not None

    def add(self, model: str, tokens: TokenUsage, cost: float | None, node: str | None, agent: str = "") -> UsageUpdate:
        """Count one reply to an agent; returns the totals of its model."""
        self.turns += 1
        return self.count(model, tokens, cost, node, agent)

    def restore(self, model: str, tokens: TokenUsage, cost: float | None) -> None:
        """Count a turn of an earlier life of the run, which is in the book already, and was taken from the day."""
        book, self._book = self._book, None
        self.add(model, tokens, cost, None)
        self._book = book
        if self.account is not None and self.limits.of_models:
            self.account.charge(Amount(tokens.input_tokens + tokens.output_tokens, cost or 0.0), 1)

    def take_in(self, part: PartUsage) -> list[UsageUpdate]:
        """Count what a part of the run has used that was played elsewhere, and is in the book; returns the totals."""
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
        """As `take_in`, for a part that was over in an earlier life of the run."""
        self.take_in(part)
        if self.account is not None and self.limits.of_models:
            self.account.charge(part.amount, part.turns)

    def totals(self) -> list[UsageUpdate]:
        """What each model has used so far."""
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
        """Count what a request has used that is no turn, as one for vectors; returns the totals of its model.

        Args:
            cost: None if the price is not known.
        """
        if self._book is not None:
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
