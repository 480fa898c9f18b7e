"""Sums as they are told: in order, with their total, and never a price that is not known."""

from __future__ import annotations

from datetime import date

import msgspec

from callboard.actors.work.spending.book import SpendingSums
from callboard.actors.work.spending.report import first_day, report


def test_today_is_the_last_of_the_days() -> None:
    assert first_day(date(2026, 3, 1), 1) == "2026-03-01"
    assert first_day(date(2026, 3, 1), 2) == "2026-02-28"


def test_rows_are_in_order_and_say_what_is_not_priced() -> None:
    found = {("b",): SpendingSums(1, 10, 4, 2, 0.0, 1), ("a",): SpendingSums(2, 20, 0, 3, 0.5, 0)}
    told = msgspec.to_builtins(report(found, ["model"], "2026-02-28", date(2026, 3, 1)))
    assert told["usage"] == [
        {"model": "a", "requests": 2, "input_tokens": 20, "cached_tokens": 0, "output_tokens": 3}
        | {"cost": 0.5, "unpriced": 0, "priced": True},
        {"model": "b", "requests": 1, "input_tokens": 10, "cached_tokens": 4, "output_tokens": 2}
        | {"cost": 0.0, "unpriced": 1, "priced": False},
    ]
    assert told["total"] == {
        "requests": 3,
        "input_tokens": 30,
        "cached_tokens": 4,
        "output_tokens": 5,
        "cost": 0.5,
        "unpriced": 1,
        "priced": False,
    }
    assert (told["since"], told["until"], told["by"]) == ("2026-02-28", "2026-03-01", ["model"])
