"""Daily limits of a made-up process: its clock, its settings, what it asks for and what the ledger says."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from callboard.actors.work.spending.accounts import Amount, Hold, reserve
from callboard.actors.work.spending.days import DayReading, Days
from callboard.actors.work.spending.ledger import DAY, LedgerFile
from callboard.protocol.settings.api import ApiKey, ApiLimits, ApiSettings, Auth, DailyLimits
from callboard.supervisors import Root

MOST = Amount(100, 1.0)
NOON = 20_000 * DAY + DAY / 2


def limited(of_all: DailyLimits | None = None, each: DailyLimits | None = None, **keys: DailyLimits) -> ApiSettings:
    static = tuple(ApiKey(subject=name, key_hash="x", scopes=(), daily=daily) for name, daily in keys.items())
    return ApiSettings(auth=Auth(keys=static), limits=ApiLimits(daily=of_all, per_subject_daily=each))


ALICE = limited(alice=DailyLimits(max_tokens=1_000))


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def kept(path: Path, settings: ApiSettings, now: Callable[[], float]) -> AsyncIterator[Days]:
    """The days of a process that ends as it should."""
    async with Root() as root:
        days = Days(root, LedgerFile(path / "usage.db"), settings, now=now)
        yield days
        await days.aclose()


async def asked(days: Days, subject: str = "alice", most: Amount = MOST) -> Hold:
    """What a request that may go out holds."""
    account = days.account(subject)
    assert account is not None
    return await reserve(account, most, lambda: None)


async def spend(days: Days, amount: Amount, subject: str = "alice") -> None:
    (await asked(days, subject)).spend(amount)


def reading(days: Days, subject: str = "alice") -> DayReading:
    (found,) = (each for each in days.readings() if each.subject == subject)
    return found


def rows(path: Path, table: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(path / "usage.db")
    try:
        columns = "day, key, tokens, cost"
        return db.execute(f"SELECT {columns} FROM {table} ORDER BY day, key, tokens").fetchall()
    finally:
        db.close()
