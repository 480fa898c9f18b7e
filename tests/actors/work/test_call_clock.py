"""The time of a call: it stands still while people think, however many think at once."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from callboard.actors.work.call_clock import Clock, current


async def test_it_runs_out_and_stands_still_while_somebody_thinks(autojump_clock: MockClock) -> None:
    clock = Clock(10)
    with clock.counting(), clock.scope:
        await trio.sleep(6)
        with clock.stopped():
            await trio.sleep(1_000)
        await trio.sleep(3)
        assert not clock.scope.cancel_called
        await trio.sleep(2)
    assert clock.scope.cancelled_caught
    assert current.get() is None


async def test_two_who_think_at_once_stop_it_once(autojump_clock: MockClock) -> None:
    clock = Clock(10)

    async def think(before: float, seconds: float) -> None:
        await trio.sleep(before)
        with clock.stopped():
            await trio.sleep(seconds)

    with clock.counting(), clock.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(think, 1, 100)
            nursery.start_soon(think, 50, 100)
        assert clock.scope.deadline - trio.current_time() == 9
    assert not clock.scope.cancelled_caught


async def test_the_clock_of_the_outer_call_stands_with_it(autojump_clock: MockClock) -> None:
    outer = Clock(10)
    with outer.counting(), outer.scope:
        inner = Clock(5)
        with inner.counting(), inner.scope:
            with inner.stopped():
                await trio.sleep(60)
            await trio.sleep(4)
        await trio.sleep(5)
    assert not inner.scope.cancelled_caught
    assert not outer.scope.cancelled_caught


async def test_one_without_an_end_has_none(autojump_clock: MockClock) -> None:
    clock = Clock(None)
    with clock.counting(), clock.scope:
        with clock.stopped():
            await trio.sleep(1)
        await trio.sleep(10_000)
    assert clock.seconds == float("inf")
