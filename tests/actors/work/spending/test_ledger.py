"""The ledger of daily limits: requests are in it before they go out, and whatever goes wrong, nothing is lost."""

from __future__ import annotations

import math
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import NoReturn

import pytest
import trio
from support.daily_limits import ALICE, NOON, Clock, asked, kept, limited, reading, rows, spend
from support.messages import says
from support.starter import forked_code

from callboard.actors.work.spending.accounts import Amount
from callboard.actors.work.spending.days import Days
from callboard.actors.work.spending.ledger import DAY, LedgerFile, LedgerUnwritten
from callboard.protocol.errors import DayReached, LedgerBroken
from callboard.protocol.settings.api import DailyLimits
from callboard.supervisors import Root


async def test_a_request_is_in_the_ledger_before_it_goes_out_and_replaced_by_what_it_came_to(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        hold = await asked(days)
        assert rows(tmp_path, "held") == [("2024-10-04", "alice", 100, 1.0)]
        hold.spend(Amount(60, 0.5))
        hold.spend(Amount(60, 0.5))
    assert rows(tmp_path, "held") == []
    assert rows(tmp_path, "ledger") == [("2024-10-04", "alice", 60, 0.5)]


async def test_what_requests_came_to_is_written_a_moment_later(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        await spend(days, Amount(60, 0.5))
        with trio.fail_after(60):
            while rows(tmp_path, "held"):
                await trio.sleep(0.01)
        assert rows(tmp_path, "ledger") == [("2024-10-04", "alice", 60, 0.5)]


async def test_requests_under_way_at_midnight_are_moved_to_the_new_day_by_themselves(tmp_path: Path) -> None:
    clock = Clock(20_001 * DAY - 0.05)
    async with kept(tmp_path, ALICE, clock) as days:
        await asked(days)
        clock.now += 0.1
        with trio.fail_after(60):
            while rows(tmp_path, "held") != [("2024-10-05", "alice", 100, 1.0)]:
                await trio.sleep(0.01)


def test_two_processes_at_once_spend_no_more_than_the_limit(tmp_path: Path) -> None:
    program = f"""
import random, time, trio
from pathlib import Path
from callboard.actors.work.spending.accounts import Amount, reserve
from callboard.actors.work.spending.days import Days
from callboard.actors.work.spending.ledger import LedgerFile
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
                hold.spend(Amount(tokens))
        except DayReached:
            pass
    async with Root() as root:
        settings = ApiSettings(limits=ApiLimits(per_subject_daily=DailyLimits(max_tokens=20_000)))
        days = Days(root, LedgerFile(Path({str(tmp_path / "usage.db")!r})), settings, now=lambda: {NOON})
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
        subprocess.Popen([*forked_code(program)], stdin=PIPE, stdout=PIPE, text=True, cwd=tmp_path) for _ in range(2)
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


async def test_a_ledger_that_can_not_be_written_refuses_requests_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "state"
    home.write_text("a file where a directory should be")
    async with kept(home, ALICE, Clock()) as days:
        for _ in range(3):
            with pytest.raises(LedgerBroken, match=says("work.spending.days.Days._broken", name="its usage.db")):
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
            patched.setattr(days.ledger.store, "written", broken)
            for _ in range(2):
                with trio.fail_after(60), pytest.raises(LedgerBroken, match="a bug"):
                    await asked(days)
        await spend(days, Amount(60))
    assert (rows(tmp_path, "held"), [row[2] for row in rows(tmp_path, "ledger")]) == ([], [60])


async def test_a_request_without_bounds_is_written_as_far_as_numbers_go(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        hold = await asked(days, most=Amount(10**30, 1e300))
        assert [row[2:] for row in rows(tmp_path, "held")] == [(10**15, 1e12)]
        hold.spend(Amount(60))
    assert [row[2] for row in rows(tmp_path, "ledger")] == [60]


async def test_what_can_not_be_written_afterwards_stays_held_until_it_can(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        hold = await asked(days)
        with sqlite3.connect(tmp_path / "usage.db") as db:
            db.execute("CREATE TRIGGER no BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        hold.spend(Amount(60))
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
        whole = days.ledger.store.written

        def count(*args: object) -> object:
            nonlocal written
            written += 1
            return whole(*args)

        monkeypatch.setattr(days.ledger.store, "written", count)

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


@asynccontextmanager
async def without_time_left(days: Days, root: Root) -> AsyncIterator[None]:
    """A block, and the end of the days, after the time that the root has to stop in."""
    before, root.deadline = root.deadline, trio.current_time() - 1
    try:
        yield
        await days.aclose()
    finally:
        root.deadline = before


async def test_the_rest_is_written_though_the_stop_has_used_its_time(tmp_path: Path) -> None:
    async with Root() as root:
        days = Days(root, LedgerFile(tmp_path / "usage.db"), ALICE, now=Clock())
        hold = await asked(days)
        async with without_time_left(days, root):
            hold.spend(Amount(60, 0.5))
    assert rows(tmp_path, "held") == []
    assert rows(tmp_path, "ledger") == [("2024-10-04", "alice", 60, 0.5)]


async def test_a_writer_whose_time_is_up_puts_back_what_it_has_not_written(tmp_path: Path) -> None:
    async with Root() as root:
        days = Days(root, LedgerFile(tmp_path / "usage.db"), ALICE, now=Clock())
        hold = await asked(days)
        async with without_time_left(days, root):
            hold.spend(Amount(60, 0.5))
            assert not await days.ledger._write()
            with pytest.raises(LedgerBroken, match=says("work.spending.ledger.Batch.__init__")):
                await asked(days)
    assert rows(tmp_path, "held") == []
    assert rows(tmp_path, "ledger") == [("2024-10-04", "alice", 60, 0.5)]


@pytest.mark.parametrize("cost", [math.nan, math.inf])
async def test_a_cost_that_is_no_number_counts_as_the_most_and_the_next_can_be_written(
    tmp_path: Path, cost: float
) -> None:
    settings = limited(DailyLimits(max_tokens=1_000), alice=DailyLimits(max_cost=1.0))
    async with kept(tmp_path, settings, Clock()) as days:
        (await asked(days, most=Amount(100, cost))).spend(Amount(60, cost))
        with pytest.raises(DayReached):
            await asked(days)
        await spend(days, Amount(10, 0.5), "bob")
    assert rows(tmp_path, "held") == []
    assert [row for row in rows(tmp_path, "ledger") if row[1] == "alice"] == [("2024-10-04", "alice", 60, 1e12)]


async def test_what_refused_callers_read_has_no_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    home = tmp_path / "file" / "state"
    async with kept(home, ALICE, Clock()) as days:
        with pytest.raises(
            LedgerBroken, match=says("work.spending.days.Days._broken", name="its usage.db", error="Not a directory")
        ) as told:
            await asked(days)
    assert str(tmp_path) not in str(told.value)
    assert str(home) in caplog.text, "the log has it"


async def test_nothing_is_written_to_a_ledger_that_was_closed(tmp_path: Path) -> None:
    async with kept(tmp_path, ALICE, Clock()) as days:
        await spend(days, Amount(60, 0.5))
        await days.aclose()
        before = rows(tmp_path, "ledger")
        days.ledger.add("2024-10-04", "alice", Amount(7, 0.1))
        days.ledger.end(1)
        with pytest.raises(LedgerUnwritten):
            await days.ledger.query(["alice"])
        await days.aclose()
    assert rows(tmp_path, "ledger") == before
