"""Counters of model usage since the process began: tokens by kind, USD, requests without a price.

The kinds are disjoint, so their sum is the total of tokens, and each has a price of its own. `input` excludes tokens
read from or written to a cache; `output` excludes reasoning. `callboard usage` counts caches as input and reasoning as
output, as providers do.

Figures per model and per subject are separate families: one family with both labels could have 100 times 100 series.
The cost has no series until a price is known, because an unknown cost is not $0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, final

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from ....protocol.chat import TokenUsage

OF_MODELS = ("llm_tokens", "llm_cost_usd", "llm_unpriced_requests")
OF_SUBJECTS = ("subject_tokens", "subject_cost_usd", "subject_unpriced_requests")
KINDS = ("input", "cached", "cache_write", "output", "reasoning")


@final
class _Sums:
    """Sums of a model, or of a subject."""

    __slots__ = ("cost", "priced", "tokens", "unpriced")

    def __init__(self) -> None:
        self.tokens = dict.fromkeys(KINDS, 0)
        self.cost = 0.0
        self.priced = self.unpriced = 0

    def add(self, used: TokenUsage, cost: float | None) -> None:
        tokens = self.tokens
        tokens["input"] += max(0, used.input_tokens - used.cached_tokens - used.cache_write_tokens)
        tokens["cached"] += used.cached_tokens
        tokens["cache_write"] += used.cache_write_tokens
        tokens["output"] += max(0, used.output_tokens - used.reasoning_tokens)
        tokens["reasoning"] += used.reasoning_tokens
        if cost is None:
            self.unpriced += 1
        else:
            self.priced += 1
            self.cost += cost


@final
class Spending(Collector):
    """Collects usage per model and per subject.

    Args:
        name: bounds the values of a label.
    """

    def __init__(self, name: Callable[[str, str], str]) -> None:
        self._name = name
        self._models: dict[str, _Sums] = {}
        self._subjects: dict[str, _Sums] = {}

    def heard(self, subject: str, model: str, used: TokenUsage, cost: float | None) -> None:
        """Add one reply; `cost` is None when the price is unknown."""
        for label, value, all in (("model", model, self._models), ("subject", subject, self._subjects)):
            name = self._name(label, value)
            sums = all.get(name)
            if sums is None:
                sums = all[name] = _Sums()
            sums.add(used, cost)

    def collect(self) -> Iterable[Metric]:
        yield from _families(OF_MODELS, "model", self._models)
        yield from _families(OF_SUBJECTS, "subject", self._subjects)


def _families(names: tuple[str, str, str], label: str, all: dict[str, _Sums]) -> Iterable[Metric]:
    tokens = CounterMetricFamily(names[0], f"Tokens of models, by {label} and kind.", labels=[label, "kind"])
    cost = CounterMetricFamily(names[1], f"What models cost in USD, by {label}.", labels=[label])
    unpriced = CounterMetricFamily(names[2], f"Requests whose price is not known, by {label}.", labels=[label])
    for name, sums in sorted(all.items()):
        for kind, count in sums.tokens.items():
            tokens.add_metric([name, kind], count)
        if sums.priced:
            cost.add_metric([name], sums.cost)
        unpriced.add_metric([name], sums.unpriced)
    return (tokens, cost, unpriced)
