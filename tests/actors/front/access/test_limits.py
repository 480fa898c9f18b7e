"""How often a subject may ask, and how many at once."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from support.messages import says

from callboard.actors.front.access import limits as limits_module
from callboard.actors.front.access.limits import ConcurrencyLimiter, RateLimiter
from callboard.actors.front.access.scopes import METHODS
from callboard.protocol.errors import Saturated


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_case_107_the_61st_request_of_a_minute_is_refused_and_others_are_not_affected() -> None:
    clock = Clock(960.0)
    rates = RateLimiter(60, clock=clock)
    for _ in range(60):
        clock.now += 0.5
        assert rates.charge("alice") == 0
    wait = rates.charge("alice")
    assert wait > 0
    assert rates.charge("bob") == 0
    clock.now += wait
    assert rates.charge("alice") == 0, "after the time that was told it goes on"


def test_a_burst_goes_beyond_the_limit_once_and_comes_back() -> None:
    clock = Clock()
    rates = RateLimiter(60, 10, clock=clock)
    assert [rates.charge("alice") > 0 for _ in range(71)] == [False] * 70 + [True]
    clock.now += 120
    rates.charge("alice")
    clock.now += 60
    assert [rates.charge("alice") > 0 for _ in range(72)].index(True) >= 69


def test_no_limit_counts_nothing() -> None:
    rates = RateLimiter(0)
    assert all(rates.charge("alice") == 0 for _ in range(1000))
    assert len(rates) == 0


def test_who_has_not_been_heard_of_for_two_minutes_is_forgotten() -> None:
    clock = Clock()
    rates = RateLimiter(5, clock=clock)
    for number in range(1000):
        rates.charge(f"subject {number}")
    clock.now += 180
    rates.charge("another")
    assert len(rates) == 1


def test_there_are_never_more_windows_than_the_safety_valve_lets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "MOST", 100)
    rates = RateLimiter(5, clock=Clock())
    for number in range(1000):
        rates.charge(f"subject {number}")
    assert len(rates) == 100


@given(st.integers(1, 20), st.lists(st.floats(0, 40), max_size=200))
def test_no_minute_has_more_than_its_limit_and_the_wait_told_is_enough(limit: int, steps: list[float]) -> None:
    clock = Clock(0.0)
    rates = RateLimiter(limit, clock=clock)
    allowed: list[float] = []
    for step in steps:
        clock.now += step
        wait = rates.charge("alice")
        if wait == 0:
            allowed.append(clock.now)
        else:
            assert 0 < wait <= 120
            clock.now += wait
            assert rates.charge("alice") == 0
            allowed.append(clock.now)
    for start in range(int(clock.now // 60) + 1):  # exact for whole minutes; in between the weights are an estimate
        assert sum(start * 60 <= moment < start * 60 + 60 for moment in allowed) <= limit


# --- places --------------------------------------------------------------------------------------------------


async def hold(places: ConcurrencyLimiter, subject: str | None, *, task_status: trio.TaskStatus[None]) -> None:
    async with places.slot(subject):
        task_status.started()
        await trio.sleep_forever()


async def test_a_subject_waits_a_little_for_its_own_places_and_is_then_sent_away(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    places = ConcurrencyLimiter(2, 10)
    for _ in range(2):
        await nursery.start(hold, places, "alice")
    began = trio.current_time()
    with pytest.raises(Saturated, match=says("front.access.limits.ConcurrencyLimiter.slot", _each=2)):
        async with places.slot("alice"):
            pass
    assert trio.current_time() - began == limits_module.PATIENCE
    async with places.slot("bob"):
        assert places.taken == 3


async def test_a_place_that_comes_free_in_time_is_taken(autojump_clock: trio.testing.MockClock) -> None:
    places = ConcurrencyLimiter(1, 10)
    order: list[str] = []

    async def use(name: str, seconds: float) -> None:
        async with places.slot("alice"):
            order.append(name)
            await trio.sleep(seconds)

    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(use, name, 0.3)
    assert sorted(order) == ["a", "b", "c"]
    assert places.taken == 0
    assert places._of == {}


async def test_all_subjects_together_are_bounded_as_well(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    places = ConcurrencyLimiter(5, 3)
    for name in ("alice", "bob", None):
        await nursery.start(partial(hold, places, name))
    assert places.free_share == 0
    with pytest.raises(Saturated, match=says("front.access.limits.ConcurrencyLimiter.slot.2", whose="3 requests are")):
        async with places.slot("carol"):
            pass
    assert places.taken == 3


async def test_who_is_cancelled_while_waiting_takes_no_place(nursery: trio.Nursery) -> None:
    places = ConcurrencyLimiter(1, 10)
    await nursery.start(hold, places, "alice")
    with trio.move_on_after(0) as scope:
        async with places.slot("alice"):
            pass
    assert scope.cancelled_caught
    assert (places.taken, places._of["alice"].borrowed_tokens) == (1, 1)


def test_a_part_of_a_request_counts_as_that_part() -> None:
    now = 0.0
    rates = RateLimiter(10, clock=lambda: now)
    assert [rates.charge("anna", 0.25) for _ in range(40)] == [0.0] * 40
    assert rates.charge("anna", 0.25) > 0


def test_a_list_of_runs_has_its_cost() -> None:
    assert 0 < METHODS["_run/list"].costs < METHODS["_run/start"].costs
