"""Sums of the book as they are told: over the command line, the control channel and HTTP alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ....protocol.control.things import UsageGroup, UsageReport, UsageRow
from .book import Spent

if TYPE_CHECKING:
    from .book import Sums


def first_day(today: date, days: int) -> str:
    """The first of so many days, the last of which is today."""
    return (today - timedelta(days=days - 1)).isoformat()


def report(found: Sums, by: Sequence[UsageGroup], since: str, today: date) -> UsageReport:
    """The sums by these groups, in order, with their total."""
    total = Spent()
    for spent in found.values():
        total.add(spent)
    rows = [_row(spent, dict(zip(by, names, strict=True))) for names, spent in sorted(found.items())]
    return UsageReport(since=since, until=today.isoformat(), by=list(by), usage=rows, total=_row(total, {}))


def _row(spent: Spent, names: dict[UsageGroup, Any]) -> UsageRow:
    return UsageRow(**names, **msgspec.structs.asdict(spent), priced=not spent.unpriced)
