"""Gauges for the use of daily limits. A kind of limit (money or tokens) has gauges only where it is configured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from ...work.spending.days import DayReading

GAUGES = {
    "daily_limit_cost_usd": "What may be spent today, in USD.",
    "daily_spent_cost_usd": "What was spent today, in USD.",
    "daily_reserved_cost_usd": "What requests under way may come to at most, in USD.",
    "daily_limit_tokens": "What may be spent today, in tokens.",
    "daily_spent_tokens": "What was spent today, in tokens.",
    "daily_reserved_tokens": "What requests under way may come to at most, in tokens.",
}
ALL = "*"
"""Label value of the limit that all subjects share."""


def daily_limits(readings: Iterable[DayReading], name: Callable[[str, str], str], other: str) -> Iterable[Metric]:
    """Return the gauges of daily limits.

    Subjects without a label of their own are omitted, because one gauge cannot hold several limits.

    Args:
        name: bounds the values of a label; returns `other` beyond the bound.
    """
    families = {name: GaugeMetricFamily(name, text, labels=["subject"]) for name, text in GAUGES.items()}
    for reading in readings:
        subject = name("subject", reading.subject) if reading.subject else ALL
        if subject == other:
            continue
        limits, spent, held = reading.limits, reading.spent, reading.held
        if limits.max_cost is not None:
            families["daily_limit_cost_usd"].add_metric([subject], limits.max_cost)
            families["daily_spent_cost_usd"].add_metric([subject], spent.cost)
            families["daily_reserved_cost_usd"].add_metric([subject], held.cost)
        if limits.max_tokens is not None:
            families["daily_limit_tokens"].add_metric([subject], limits.max_tokens)
            families["daily_spent_tokens"].add_metric([subject], spent.tokens)
            families["daily_reserved_tokens"].add_metric([subject], held.tokens)
    return families.values()
