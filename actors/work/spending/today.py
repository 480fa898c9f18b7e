"""Days from 00:00 UTC to 00:00 UTC, and moments of them as a ledger sees them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

DAY = 86_400
GRACE = 60.0
"""Seconds of a day in which requests of the day before that are under way may still be written as such."""


class Today(msgspec.Struct, frozen=True):
    """A moment as the ledger sees it.

    Attributes:
        day: `2026-11-23`.
        since: rows of `held` count from this day on: `day`, or the one before in the first minute.
        yesterday: rows of `held` older than this belong to processes that have died.
        left: seconds until the next day.
    """

    day: str
    since: str
    yesterday: str
    left: float


def today_of(number: int, now: float) -> Today:
    """A moment as the ledger sees it.

    Args:
        number: of the day, since 1970.
        now: by the wall clock.
    """
    gone = now - number * DAY
    day, yesterday = date_of(number), date_of(number - 1)
    early = 0 <= gone < GRACE  # not if the clock was set back: by then processes have moved their rows
    return Today(day=day, since=yesterday if early else day, yesterday=yesterday, left=DAY - gone)


def date_of(number: int) -> str:
    """`2026-11-23`, of the number of a day since 1970."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number)).date().isoformat()
