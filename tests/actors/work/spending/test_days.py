"""Daily limits: days begin anew, other processes and former lives count, and nothing goes out that the ledger lacks."""

from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import NoReturn

import pytest
import trio

from callboard.actors.work.spending import days as module
from callboard.actors.work.spending.accounts import Account, Amount, Hold
from callboard.actors.work.spending.daily import ALL, DayReading
from callboard.actors.work.spending.days import DAY, Days
from callboard.actors.work.spending.reserve import reserve
from callboard.protocol.errors import BudgetReached, DayReached, LedgerBroken
from callboard.protocol.requests import Limits
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
        days = Days(root, path / "usage.db", settings, now=now)
        yield days
        await days.aclose()


async def asked(days: Days, subject: str = "alice", most: Amount = MOST) -> Hold:
    """What a request that may go out holds."""
    account = days.account(subject)
    assert account is not None
    return await reserve(account, most, lambda: None)


async def spend(days: Days, amount: Amount, subject: str = "alice") -> None:
    (await asked(days, subject)).settle(amount)


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


async def test_a_request_is_in_the_ledger_before_it_goes_out_and_replaced_by_what_it_came_to(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        hold = await asked(days)
        assert rows(tmp_path, "held") == [("2024-10-04", "alice", 100, 1.0)]
        hold.settle(Amount(60, 0.5))
        hold.settle(Amount(60, 0.5))
    assert rows(tmp_path, "held") == []
    assert rows(tmp_path, "ledger") == [("2024-10-04", "alice", 60, 0.5)]


async def test_what_requests_came_to_is_written_a_moment_later(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        await spend(days, Amount(60, 0.5))
        with trio.fail_after(10):
            while rows(tmp_path, "held"):
                await trio.sleep(0.01)
        assert rows(tmp_path, "ledger") == [("2024-10-04", "alice", 60, 0.5)]


async def test_a_former_life_counts_and_so_does_what_it_held_when_it_was_killed(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        await spend(days, Amount(600))
        await asked(days, most=Amount(300))
    async with kept(tmp_path, ALICE, Clock()) as days:
        await days.check("alice")
        assert (reading(days).spent.tokens, reading(days).held.tokens) == (600, 300)
        await spend(days, Amount(100))
        with pytest.raises(DayReached):
            await asked(days)


async def test_a_day_that_is_spent_is_named_with_its_key_and_when_the_next_begins(tmp_path: Path) -> None:
    settings = limited(alice=DailyLimits(max_cost=5))
    async with kept(tmp_path, settings, Clock(NOON + 48 * 60)) as days:
        await spend(days, Amount(10, 5.0012))
        with pytest.raises(DayReached) as told:
            await days.check("alice")
    assert str(told.value) == (
        "the day of 'alice' has cost 5.0012 of its 5 USD (`api.auth.keys[0].daily.max_cost`); "
        "the next begins at 00:00 UTC, in 11 h 12 min"
    )
    assert told.value.retry_after == 11 * 3600 + 12 * 60
    assert (told.value.code, told.value.exit_code) == ("daily_budget", 4)
    assert isinstance(told.value, BudgetReached), "it ends a run as every budget does"


async def test_a_new_day_begins_with_nothing_but_what_is_under_way(tmp_path: Path) -> None:
    clock = Clock()
    async with kept(tmp_path, ALICE, clock) as days:
        await spend(days, Amount(900))
        under_way = await asked(days, most=Amount(500))
        clock.now += DAY / 2
        assert (reading(days).spent, reading(days).held.tokens) == (Amount(), 500)
        hold = await asked(days, most=Amount(400))
        under_way.settle(Amount(250))
        assert reading(days).spent.tokens == 250, "it counts on the day on which it is settled"
        hold.release()
    assert rows(tmp_path, "ledger") == [("2024-10-04", "alice", 900, 0.0), ("2024-10-05", "alice", 250, 0.0)]


async def test_requests_under_way_at_midnight_are_moved_to_the_new_day_by_themselves(tmp_path: Path) -> None:
    clock = Clock(20_001 * DAY - 0.05)
    async with kept(tmp_path, ALICE, clock) as days:
        await asked(days)
        clock.now += 0.1
        with trio.fail_after(10):
            while rows(tmp_path, "held") != [("2024-10-05", "alice", 100, 1.0)]:
                await trio.sleep(0.01)


async def test_another_process_counts_what_is_under_way_at_midnight(tmp_path: Path) -> None:
    clock, late = Clock(20_001 * DAY - 100), Clock(20_001 * DAY + 10)
    async with kept(tmp_path, ALICE, clock) as days, kept(tmp_path, ALICE, late) as other:
        await asked(days, most=Amount(1_000))
        with pytest.raises(DayReached):
            await asked(other)
        late.now += 60  # what is still written as of yesterday is of a process that has died
        await trio.sleep(module.LOOK_EVERY)
        assert isinstance(await asked(other), Hold)


async def test_a_clock_that_is_set_back_gives_no_second_day(tmp_path: Path) -> None:
    clock = Clock()
    async with kept(tmp_path, ALICE, clock) as days:
        clock.now += DAY
        await spend(days, Amount(1_000))
        clock.now -= DAY
        with pytest.raises(DayReached) as told:
            await asked(days)
        assert told.value.retry_after == 1.5 * DAY
        clock.now += DAY
        with pytest.raises(DayReached):
            await asked(days)


async def test_a_clock_that_is_set_back_does_not_bring_back_what_was_held_yesterday(tmp_path: Path) -> None:
    clock = Clock()
    async with kept(tmp_path, ALICE, clock) as days:
        await asked(days, most=Amount(1_000))
    clock.now += DAY
    async with kept(tmp_path, ALICE, clock) as days:
        clock.now -= 0.6 * DAY
        await spend(days, Amount(10))


async def test_a_clock_that_was_years_ahead_goes_on_with_what_the_ledger_has(tmp_path: Path) -> None:
    clock = Clock()
    async with kept(tmp_path, ALICE, clock) as days:
        await spend(days, Amount(800))
        clock.now += 1_000 * DAY
        await spend(days, Amount(900))
        clock.now -= 1_000 * DAY
        await spend(days, Amount(200))
        with pytest.raises(DayReached):
            await asked(days)
    async with kept(tmp_path, ALICE, Clock()) as days:
        with pytest.raises(DayReached):
            await days.check("alice")


async def test_of_two_processes_one_gets_what_is_left(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as one, kept(tmp_path, ALICE, Clock()) as two:
        await spend(one, Amount(950))
        holds: list[Hold] = []
        refused: list[DayReached] = []

        async def ask(days: Days) -> None:
            try:
                holds.append(await asked(days))
            except DayReached as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            for days in (one, two):
                nursery.start_soon(ask, days)
        assert (len(holds), len(refused)) == (1, 1)


def test_two_processes_at_once_spend_no_more_than_the_limit(tmp_path: Path) -> None:
    program = f"""
import random, time, trio
from pathlib import Path
from callboard.actors.work.spending.accounts import Amount
from callboard.actors.work.spending.days import Days
from callboard.actors.work.spending.reserve import reserve
from callboard.protocol.errors import DayReached
from callboard.protocol.settings.api import ApiLimits, ApiSettings, DailyLimits
from callboard.supervisors import Root

async def main():
    spent = 0
    async def caller():
        nonlocal spent
        try:
            while True:
                hold = await reserve(days.account("alice"), Amount(100), lambda: None)
                await trio.sleep(random.random() / 100)
                tokens = random.randint(0, 100)
                spent += tokens
                hold.settle(Amount(tokens))
        except DayReached:
            pass
    async with Root() as root:
        settings = ApiSettings(limits=ApiLimits(per_subject_daily=DailyLimits(max_tokens=20_000)))
        days = Days(root, Path({str(tmp_path / "usage.db")!r}), settings, now=lambda: {NOON})
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(caller)
        await days.aclose()
    print(spent)
print("ready", flush=True)
input()
trio.run(main)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", program], stdin=PIPE, stdout=PIPE, text=True, cwd=tmp_path)
        for _ in range(2)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    spent = [int(process.communicate(timeout=60)[0]) for process in running]
    assert min(spent) > 0
    assert 20_000 - 2_000 <= sum(spent) <= 20_000 + 100, "those who end first leave what others held then"
    assert rows(tmp_path, "ledger") == [("2024-10-04", "alice", sum(spent), 0.0)]


async def test_what_another_process_gives_back_can_be_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", 0.0)
    async with kept(tmp_path, ALICE, Clock()) as one, kept(tmp_path, ALICE, Clock()) as two:
        hold = await asked(one, most=Amount(1_000))
        with pytest.raises(DayReached):
            await asked(two)
        hold.settle(Amount(10))
        with trio.fail_after(10):
            while True:
                try:
                    await asked(two)
                    break
                except DayReached:
                    await trio.sleep(0.01)


async def test_a_request_waits_for_what_its_own_process_holds(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        first = await asked(days, most=Amount(1_000))
        waited: list[str] = []
        got: list[Hold] = []

        async def second() -> None:
            account = days.account("alice")
            assert account is not None
            got.append(await reserve(account, MOST, lambda: waited.append("waits")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(second)
            while not waited:
                await trio.sleep(0.001)
            assert not got
            first.settle(Amount(10))
        assert len(got) == 1


async def test_the_day_of_the_server_holds_for_all_and_that_of_a_subject_within_it(tmp_path: Path) -> None:
    settings = limited(DailyLimits(max_tokens=300), DailyLimits(max_tokens=200), alice=DailyLimits(max_tokens=100))
    async with kept(tmp_path, settings, Clock()) as days:
        await spend(days, Amount(100))
        with pytest.raises(DayReached, match=r"the day of 'alice' .*auth\.keys"):
            await asked(days)
        await spend(days, Amount(150), "bob")
        assert reading(days, ALL).spent.tokens == 250
        await spend(days, Amount(60), "local")
        with pytest.raises(DayReached, match=r"the day of this server .*`api\.limits\.daily\.max_tokens`"):
            await asked(days, "local")
        with pytest.raises(DayReached, match="the day of this server"):
            await asked(days, "bob")


async def test_without_limits_nothing_is_charged_and_no_file_is_made(tmp_path: Path) -> None:
    async with kept(tmp_path, limited(alice=DailyLimits(max_cost=1)), Clock()) as days:
        assert days.account("bob") is None
        assert days.account("local") is None
        await days.check("bob")
    async with kept(tmp_path, ApiSettings(), Clock()) as days:
        await days.look()
        assert days.readings() == []
    assert list(tmp_path.iterdir()) == []


async def test_new_limits_hold_from_then_on_also_for_runs_under_way(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        await spend(days, Amount(600))
        run = Account("the run", Limits(max_turns=10), days.account("alice"))
        days.configure(limited(alice=DailyLimits(max_tokens=500)))
        with pytest.raises(DayReached):
            await reserve(run, MOST, lambda: None)
        days.configure(limited(DailyLimits(max_tokens=150), alice=DailyLimits(max_tokens=5_000)))
        (await reserve(run, MOST, lambda: None)).settle(Amount(150))
        with pytest.raises(DayReached, match="of this server"):
            await reserve(run, MOST, lambda: None)
        days.configure(ApiSettings())
        (await reserve(run, MOST, lambda: None)).settle(Amount(150))
        assert days.account("alice") is None
        days.configure(ALICE)
        assert reading(days).spent.tokens == 900, "what was spent today is not forgotten"


async def test_a_ledger_that_can_not_be_written_refuses_requests_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "state"
    home.write_text("a file where a directory should be")
    async with kept(home, ALICE, Clock()) as days:
        for _ in range(3):
            with pytest.raises(LedgerBroken, match=r"can't be written to its usage\.db .*nothing can be spent now"):
                await asked(days)
        with pytest.raises(LedgerBroken):
            await days.check("alice")
        assert reading(days).held == Amount()
        home.unlink()
        await spend(days, Amount(60))
    assert caplog.text.count(f"can't be written to {home / 'usage.db'}") == 1
    assert caplog.text.count("can be written to") == 1
    assert [row[2] for row in rows(home, "ledger")] == [60]


async def test_whatever_goes_wrong_no_request_goes_out_unwritten_or_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> NoReturn:
        raise RuntimeError("a bug")

    async with kept(tmp_path, ALICE, Clock()) as days:
        with monkeypatch.context() as patched:
            patched.setattr(days.ledger._file, "written", broken)
            for _ in range(2):
                with trio.fail_after(10), pytest.raises(LedgerBroken, match="a bug"):
                    await asked(days)
        await spend(days, Amount(60))
    assert (rows(tmp_path, "held"), [row[2] for row in rows(tmp_path, "ledger")]) == ([], [60])


async def test_a_request_without_bounds_is_written_as_far_as_numbers_go(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        hold = await asked(days, most=Amount(10**30, 1e300))
        assert [row[2:] for row in rows(tmp_path, "held")] == [(10**15, 1e12)]
        hold.settle(Amount(60))
    assert [row[2] for row in rows(tmp_path, "ledger")] == [60]


async def test_what_can_not_be_written_afterwards_stays_held_until_it_can(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        hold = await asked(days)
        with sqlite3.connect(tmp_path / "usage.db") as db:
            db.execute("CREATE TRIGGER no BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        hold.settle(Amount(60))
        with pytest.raises(LedgerBroken, match="disk full"):
            await asked(days)
        assert [row[2] for row in rows(tmp_path, "held")] == [100]
        with sqlite3.connect(tmp_path / "usage.db") as db:
            db.execute("DROP TRIGGER no")
        (await asked(days)).release()
    assert (rows(tmp_path, "held"), [row[2] for row in rows(tmp_path, "ledger")]) == ([], [60])


async def test_a_request_that_is_cancelled_while_it_is_written_holds_nothing(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        with trio.CancelScope() as scope:
            scope.cancel()
            await asked(days)
        assert scope.cancelled_caught
        assert reading(days).held == Amount()
        await spend(days, Amount(10))
    assert rows(tmp_path, "held") == []


async def test_requests_at_once_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0
    async with kept(tmp_path, limited(alice=DailyLimits(max_tokens=1_000_000)), Clock()) as days:
        whole = days.ledger._file.written

        def count(*args: object) -> object:
            nonlocal written
            written += 1
            return whole(*args)

        monkeypatch.setattr(days.ledger._file, "written", count)

        async def ask() -> None:
            await spend(days, Amount(50))

        async with trio.open_nursery() as nursery:
            for _ in range(1_000):
                nursery.start_soon(ask)
        assert written <= 5
    assert [row[2] for row in rows(tmp_path, "ledger")] == [50_000]


async def test_what_was_held_two_days_ago_is_spent_then_and_old_days_are_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    async with kept(tmp_path, ALICE, clock) as days:
        await asked(days, most=Amount(70))
    clock.now += 2 * DAY
    for _ in range(70):
        async with kept(tmp_path, ALICE, clock) as days:
            await spend(days, Amount(1))
        clock.now += DAY
    ledger = rows(tmp_path, "ledger")
    assert rows(tmp_path, "held") == []
    assert len(ledger) == 61
    assert ("2024-10-04", "alice", 70, 1.0) not in ledger


async def test_subjects_that_are_gone_are_forgotten_with_their_day(tmp_path: Path) -> None:
    clock = Clock()
    async with kept(tmp_path, limited(each=DailyLimits(max_tokens=1_000)), clock) as days:
        for number in range(50):
            await days.check(f"visitor-{number}")
        assert len(days.readings()) == 50
        staying, gone = days.account("visitor-1"), weakref.ref(days.account("visitor-3"))
        clock.now += DAY
        assert days.account("visitor-2") is not None
        gc.collect()
        assert gone() is None
        assert [each.subject for each in days.readings()] == ["visitor-2"]
        assert days.account("visitor-1") is staying, "a run under way has it"
