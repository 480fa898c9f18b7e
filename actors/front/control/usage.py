"""Usage report: cost and tokens of models, for all subjects or only the caller's."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import trio

from ....protocol.control.resources import UsageGroup, UsageReport
from ....protocol.errors import NotKept, UsageError
from ...work.spending.book import TROUBLE, read, reason_of
from ...work.spending.report import first_day, report

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller
    from ...runs.root import Root
    from ...work.spending.days import DayReading, Days

MOST_ROWS = 10_000
"""Maximum number of rows of a report."""

log = logging.getLogger("callboard.control")


async def usage_of(root: Root, caller: Caller, by: Sequence[UsageGroup], days: int) -> UsageReport:
    """Return the sums of the last `days` days, today included, and the used share of daily limits.

    A caller without `admin:runs` gets only the figures of its own subject.
    The sums include counts of this process that are not yet in the database.

    Raises:
        UsageError: the report has too many rows.
        NotKept: the usage database cannot be read.
    """
    caller.need("read:runs")
    by, today = list(dict.fromkeys(by)), datetime.now(UTC).date()
    since = first_day(today, days)
    key = None if caller.has("admin:runs") else caller.subject
    try:
        if root.book is not None:
            found = await root.book.read(since, by, key)
        else:
            found = await trio.to_thread.run_sync(partial(read, root.usage_file, since, by, key))
    except TROUBLE as error:
        log.warning("the model usage can't be read: %s", error)
        raise NotKept(f"the model usage can't be read: {reason_of(error)}") from None
    if len(found) > MOST_ROWS:
        raise UsageError(
            f"grouped by {' and '.join(by)}, {days} days have {len(found)} rows, more than {MOST_ROWS}: ask "
            "for fewer days, or group by less"
        )
    return report(found, by, since, today, await _daily(root.days, key))


async def _daily(days: Days | None, key: str | None) -> list[DayReading]:
    """Return the readings of daily limits: all, or only that of one key."""
    if days is None:
        return []
    if key is not None:
        days.account(key)  # a key without requests today has a limit, too
    await days.poll()
    return [reading for reading in days.readings() if key in (None, reading.subject)]
