"""Days from 00:00 UTC to 00:00 UTC, and moments in the form that a ledger needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

DAY = 86_400
GRACE = 60.0
"""Seconds at the start of a day in which requests in flight may still be recorded under the day before."""


class Today(msgspec.Struct, frozen=True):
    """Moment in the form that a ledger needs.

    Attributes:
        day: `2026-11-23`.
        since: rows of `held` count from this day on: `day`, or the day before in the first minute.
        yesterday: rows of `held` older than this belong to dead processes.
        left: seconds until the next day.
    """

    day: str
    since: str
    yesterday: str
    left: float


def today_of(number: int, now: float) -> Today:
    """Return the moment for a day and a time.

    Args:
        number: the day, counted from 1970.
        now: time of the wall clock, in seconds since 1970.
    """
    gone = now - number * DAY
    day, yesterday = date_of(number), date_of(number - 1)
    early = 0 <= gone < GRACE  # Not if the clock was set back: processes have moved their rows already.
    return Today(day=day, since=yesterday if early else day, yesterday=yesterday, left=DAY - gone)


def date_of(number: int) -> str:
    """Return the date of a day counted from 1970: `2026-11-23`."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number)).date().isoformat()
