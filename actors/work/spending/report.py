"""Usage reports: sums of the book for the command line, the control channel and HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ....protocol.control.resources import DailyUse, UsageGroup, UsageReport, UsageRow
from .book import SpendingSums

if TYPE_CHECKING:
    from .book import Sums
    from .days import DayReading


def first_day(today: date, days: int) -> str:
    """Return the ISO date of the first day of a period of `days` days that ends today."""
    return (today - timedelta(days=days - 1)).isoformat()


def report(
    found: Sums, by: Sequence[UsageGroup], since: str, today: date, limits: Iterable[DayReading] = ()
) -> UsageReport:
    """Return a report: sums by the groups `by`, sorted by their names, the total, and the usage of daily limits.

    Args:
        found: the sums; each key has one value for each group of `by`.
        since: first day, as an ISO date.
        today: last day.
    """
    total = SpendingSums()
    for spent in found.values():
        total.add(spent)
    rows = [_row(spent, dict(zip(by, names, strict=True))) for names, spent in sorted(found.items())]
    daily = [_use(reading) for reading in limits]
    until = today.isoformat()
    return UsageReport(since=since, until=until, by=list(by), usage=rows, total=_row(total, {}), daily=daily)


def _row(spent: SpendingSums, names: dict[UsageGroup, Any]) -> UsageRow:
    return UsageRow(**names, **msgspec.structs.asdict(spent), priced=not spent.unpriced)


def _use(reading: DayReading) -> DailyUse:
    return DailyUse(
        subject=reading.subject,
        day=reading.day,
        max_cost=reading.limits.max_cost,
        max_tokens=reading.limits.max_tokens,
        cost=reading.spent.cost,
        tokens=reading.spent.tokens,
        held_cost=reading.held.cost,
        held_tokens=reading.held.tokens,
        key=reading.key,
    )
