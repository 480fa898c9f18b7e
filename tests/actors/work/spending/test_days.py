"""Daily limits: days begin anew, other processes and former lives count, and nothing goes out that the ledger lacks."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import trio
from support.daily_limits import ALICE, MOST, NOON, Clock, asked, kept, limited, reading, rows, spend
from support.messages import has_message, says

from callboard.actors.work.spending import days as module
from callboard.actors.work.spending.accounts import Account, Amount, Hold, reserve
from callboard.actors.work.spending.days import ALL, Days
from callboard.actors.work.spending.ledger import DAY
from callboard.protocol.errors import BudgetReached, DayReached
from callboard.protocol.requests import Limits
from callboard.protocol.settings.api import ApiSettings, DailyLimits


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
    assert has_message(
        str(told.value), "work.spending.days.DayAccount._refuse", error="…'alice'…", minutes=11, minutes_2=12
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
        under_way.spend(Amount(250))
        assert reading(days).spent.tokens == 250, "it counts on the day on which it is settled"
        hold.release()
    assert rows(tmp_path, "ledger") == [("2024-10-04", "alice", 900, 0.0), ("2024-10-05", "alice", 250, 0.0)]


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


async def test_what_another_process_gives_back_can_be_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", 0.0)
    async with kept(tmp_path, ALICE, Clock()) as one, kept(tmp_path, ALICE, Clock()) as two:
        hold = await asked(one, most=Amount(1_000))
        with pytest.raises(DayReached):
            await asked(two)
        hold.spend(Amount(10))
        with trio.fail_after(60):
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
            first.spend(Amount(10))
        assert len(got) == 1


async def test_the_day_of_the_server_holds_for_all_and_that_of_a_subject_within_it(tmp_path: Path) -> None:
    settings = limited(DailyLimits(max_tokens=300), DailyLimits(max_tokens=200), alice=DailyLimits(max_tokens=100))
    async with kept(tmp_path, settings, Clock()) as days:
        await spend(days, Amount(100))
        with pytest.raises(
            DayReached,
            match=says("work.spending.accounts.Account._check_spent.2", name="…'alice'…", _key="…auth.keys…"),
        ):
            await asked(days)
        await spend(days, Amount(150), "bob")
        assert reading(days, ALL).spent.tokens == 250
        await spend(days, Amount(60), "local")
        with pytest.raises(
            DayReached,
            match=says("work.spending.accounts.Account._check_spent.2", _key="`api.limits.daily.max_tokens`"),
        ):
            await asked(days, "local")
        with pytest.raises(DayReached, match=says("work.spending.days.DayAccount.__init__.2")):
            await asked(days, "bob")


async def test_without_limits_nothing_is_charged_and_no_file_is_made(tmp_path: Path) -> None:
    async with kept(tmp_path, limited(alice=DailyLimits(max_cost=1)), Clock()) as days:
        assert days.account("bob") is None
        assert days.account("local") is None
        await days.check("bob")
    async with kept(tmp_path, ApiSettings(), Clock()) as days:
        await days.poll()
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
        (await reserve(run, MOST, lambda: None)).spend(Amount(150))
        with pytest.raises(DayReached, match=says("work.spending.days.DayAccount.__init__.2")):
            await reserve(run, MOST, lambda: None)
        days.configure(ApiSettings())
        (await reserve(run, MOST, lambda: None)).spend(Amount(150))
        assert days.account("alice") is None
        days.configure(ALICE)
        assert reading(days).spent.tokens == 900, "what was spent today is not forgotten"


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


BOB = limited(each=DailyLimits(max_cost=1.0))


async def test_who_has_no_key_is_known_after_a_restart_before_coming_again(tmp_path: Path) -> None:
    async with kept(tmp_path, BOB, Clock()) as days:
        await spend(days, Amount(100, 0.9), "bob")
        await asked(days, "carol")
    async with kept(tmp_path, BOB, Clock()) as days:
        await days.poll()
        assert {each.subject: (each.spent, each.held) for each in days.readings()} == {
            "bob": (Amount(100, 0.9), Amount()),
            "carol": (Amount(), MOST),
        }
    async with kept(tmp_path, ALICE, Clock()) as days:
        await days.poll()
        assert [each.subject for each in days.readings()] == ["alice"], "bob has no limit any more"


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (
            DailyLimits(max_cost=1.0),
            r"has spent 0\.2500 of its 1 USD \(`.*\.max_cost`\), and 1\.0000 USD are reserved",
        ),
        (
            DailyLimits(max_tokens=100),
            r"has used 30 of its 100 tokens \(`.*\.max_tokens`\), and 100 tokens are reserved",
        ),
    ],
)
async def test_what_others_reserve_is_not_told_as_spent_nor_to_last_until_midnight(
    tmp_path: Path, limits: DailyLimits, told: str
) -> None:
    settings = limited(alice=limits)
    async with kept(tmp_path, settings, Clock()) as one, kept(tmp_path, settings, Clock()) as two:
        await spend(one, Amount(30, 0.25))
        await asked(one)
        with pytest.raises(
            DayReached, match=f"the daily budget of 'alice' {told} by requests of other servers"
        ) as refused:
            await two.check("alice")
        assert refused.value.retry_after == module.HELD_FOR
        assert refused.value.account == "the daily budget of this server/the daily budget of 'alice'"


async def test_what_is_spent_is_told_as_such_though_others_reserve_more(tmp_path: Path) -> None:
    settings = limited(alice=DailyLimits(max_tokens=100, max_cost=0.5))
    async with kept(tmp_path, settings, Clock()) as one, kept(tmp_path, settings, Clock()) as two:
        holds = [await asked(one, most=Amount(50, 0.1)) for _ in range(2)]
        holds[0].spend(Amount(60, 0.5))
        await one.ledger.query(["alice"])  # it is written
        with pytest.raises(DayReached, match=says("work.spending.days.DayAccount._refuse")) as told:
            await two.check("alice")
        assert told.value.retry_after == DAY / 2


async def test_requests_at_once_are_not_refused_on_what_others_reserved_before(tmp_path: Path) -> None:
    got: list[Hold | DayReached] = []

    async with kept(tmp_path, ALICE, Clock()) as one, kept(tmp_path, ALICE, Clock()) as two:

        async def ask() -> None:
            try:
                got.append(await asked(two))
            except DayReached as error:
                got.append(error)

        hold = await asked(one, most=Amount(1_000))
        with pytest.raises(DayReached):
            await two.check("alice")
        hold.spend(Amount(10))
        await one.ledger.query(["alice"])  # it is written
        async with trio.open_nursery() as nursery:
            nursery.start_soon(two.check, "alice")
            for _ in range(4):
                nursery.start_soon(ask)
    assert [type(each).__name__ for each in got] == ["WrittenHold"] * 4


async def test_what_a_crash_left_yesterday_sends_callers_away_for_the_first_minute_alone(tmp_path: Path) -> None:
    clock = Clock(20_001 * DAY - 100)
    async with kept(tmp_path, ALICE, clock) as days:
        await asked(days, most=Amount(1_500))
    clock.now = 20_001 * DAY + 1
    async with kept(tmp_path, ALICE, clock) as days:
        with pytest.raises(DayReached) as refused:
            await days.check("alice")
        assert refused.value.retry_after == pytest.approx(module.GRACE - 1 + module.LOOK_EVERY)
        clock.now += refused.value.retry_after
        await days.check("alice")
        await asked(days)
