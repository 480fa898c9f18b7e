"""Daily limits of the settings, and their usage as the ledger file has it, for processes other than the server.

A server has newer figures in its `days`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec

from ....protocol.control.caller import LOCAL
from ....protocol.settings.api import ApiSettings, DailyLimits
from .accounts import NOTHING, Amount
from .book import rows

if TYPE_CHECKING:
    from .today import Today

ALL = ""
"""Key of the account of all subjects together."""


class DayReading(msgspec.Struct, frozen=True):
    """Usage of a daily limit.

    Attributes:
        subject: subject that the limit applies to; "" for all together.
        day: `2026-11-23`.
        limits: the limits of that day.
        spent: spending so far, including that of other processes.
        held: upper bounds of requests in flight, here and in other processes, and of requests of crashed processes.
        key: settings key of the limit.
    """

    subject: str
    day: str
    limits: DailyLimits
    spent: Amount
    held: Amount
    key: str


@final
class DailyRules:
    """Daily limits by subject.

    Attributes:
        all: the limits of all subjects together, and their settings key.
        subjects: the subjects of the API keys.
        limits_others: subjects without a key, for example of signed tokens, have a limit.
    """

    def __init__(self, settings: ApiSettings) -> None:
        keys = enumerate(settings.auth.static)
        self._of_keys = {key.subject: (key.daily, f"api.auth.keys[{at}].daily") for at, key in keys if key.daily}
        self._of_others = settings.limits.per_subject_daily, "api.limits.per_subject_daily"
        self.limits_others = self._of_others[0] is not None
        self.subjects = sorted({key.subject for key in settings.auth.static})
        self.all = settings.limits.daily, "api.limits.daily"

    def of(self, subject: str) -> tuple[DailyLimits | None, str]:
        """Return the limits of a subject, and their settings key."""
        return self._of_keys.get(subject, self._of_others)


def readings(path: Path, settings: ApiSettings, today: Today) -> list[DayReading]:
    """Return the usage of each limit: of all together, of keys, and of other subjects that have spent today.

    Raises:
        sqlite3.Error, OSError: the file can't be read.
    """
    rules = DailyRules(settings)
    spent = _sums(path, "ledger", "SELECT key, tokens, cost FROM ledger WHERE day = ?", today.day)
    held = _sums(path, "held", "SELECT key, SUM(tokens), SUM(cost) FROM held WHERE day >= ? GROUP BY key", today.since)
    subjects = {ALL, *rules.subjects, *spent, *held} - {LOCAL.subject}
    found = []
    for subject in sorted(subjects):
        limits, key = rules.all if subject == ALL else rules.of(subject)
        if limits is not None and not limits.is_empty:
            of = spent.get(subject, NOTHING), held.get(subject, NOTHING)
            found.append(DayReading(subject, today.day, limits, *of, key))
    return found


def _sums(path: Path, table: str, query: str, day: str) -> dict[str, Amount]:
    return {key: Amount(tokens, cost) for key, tokens, cost in rows(path, table, query, (day,))}
