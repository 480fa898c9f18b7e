"""Daily limits as the settings have them, and how far they are used, as the file says: for programs that are no server.

A server knows more at each moment, and asks its `days`.
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
"""The key of the account of all subjects."""


class DayReading(msgspec.Struct, frozen=True):
    """How far a daily limit is used.

    Attributes:
        subject: whose; "" for all together.
        day: `2026-11-23`.
        limits: what may be spent on it.
        spent: what was, by other processes as well.
        held: what requests under way may come to at most, here and in other processes, or those that crashed.
        key: where the limit is in the settings.
    """

    subject: str
    day: str
    limits: DailyLimits
    spent: Amount
    held: Amount
    key: str


@final
class DailyRules:
    """Who may spend how much in a day.

    Attributes:
        all: what all together may spend.
        subjects: those of the keys.
        limits_others: whether subjects without a key, as those of signed tokens, have a limit.
    """

    def __init__(self, settings: ApiSettings) -> None:
        keys = enumerate(settings.auth.static)
        self._of_keys = {key.subject: (key.daily, f"api.auth.keys[{at}].daily") for at, key in keys if key.daily}
        self._of_others = settings.limits.per_subject_daily, "api.limits.per_subject_daily"
        self.limits_others = self._of_others[0] is not None
        self.subjects = sorted({key.subject for key in settings.auth.static})
        self.all = settings.limits.daily, "api.limits.daily"

    def of(self, subject: str) -> tuple[DailyLimits | None, str]:
        """What a subject may spend, and the key of that in the settings."""
        return self._of_keys.get(subject, self._of_others)


def readings(path: Path, settings: ApiSettings, today: Today) -> list[DayReading]:
    """How far each limit is used: that of all, those of keys, and those of others who have spent today.

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
