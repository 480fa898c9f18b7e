"""The time limits of asks share one sleeper; nobody can tell."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from support.messages import says

from callboard.protocol.errors import AskTimeout
from callboard.supervisors import Actor, Root
from callboard.supervisors.scheduler import COMPACT_AT

from .notes import Note


async def silent(me: Actor) -> None:
    async for _ in me:
        me.take_request()


async def echo(me: Actor) -> None:
    async for message in me:
        me.reply(message.said)


async def test_each_ask_expires_at_its_own_time_whatever_the_order(root: Root) -> None:
    ref = root.spawn(silent)
    expired: list[tuple[float, str]] = []

    async def ask(seconds: float) -> None:
        with pytest.raises(AskTimeout) as caught:
            await ref.ask(Note("anybody?"), timeout=seconds)
        expired.append((trio.current_time(), str(caught.value)))

    async with trio.open_nursery() as nursery:
        for seconds in (3.0, 1.0, 2.0, 0.5):
            nursery.start_soon(ask, seconds)
    assert expired == [(seconds, f"no reply from /silent within {seconds:g} s") for seconds in (0.5, 1.0, 2.0, 3.0)]


async def test_a_shorter_limit_set_later_still_comes_first(root: Root) -> None:
    ref = root.spawn(silent)

    async def ask_long() -> None:
        with pytest.raises(AskTimeout):
            await ref.ask(Note("later"), timeout=100)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_long)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(AskTimeout):
            await ref.ask(Note("sooner"), timeout=1)
        assert trio.current_time() == pytest.approx(1.0)
    assert trio.current_time() == pytest.approx(100.0)


async def test_an_asker_that_was_cancelled_is_not_woken_again(root: Root) -> None:
    ref = root.spawn(silent)
    with trio.move_on_after(0.5) as scope:
        await ref.ask(Note("anybody?"), timeout=1)
    assert scope.cancelled_caught
    await trio.sleep(2)
    assert trio.current_time() == pytest.approx(2.5)


async def test_limits_of_answered_asks_do_not_pile_up(root: Root) -> None:
    ref = root.spawn(echo)
    for number in range(3 * COMPACT_AT):
        assert await ref.ask(Note(number), timeout=3_600) == number
        assert len(root.alarms) <= COMPACT_AT + 1


async def test_sorting_out_keeps_the_limits_of_those_who_still_wait(root: Root) -> None:
    ref, mute = root.spawn(echo), root.spawn(silent)
    late = 0

    async def wait(seconds: float) -> None:
        nonlocal late
        with pytest.raises(AskTimeout):
            await mute.ask(Note("anybody?"), timeout=seconds)
        assert trio.current_time() == pytest.approx(seconds)
        late += 1

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(wait, 50.0 - number)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(2 * COMPACT_AT):
            await ref.ask(Note(number), timeout=3_600)
    assert late == 10


@pytest.mark.parametrize("timeout", [0, 0.0])
async def test_no_time_at_all_is_no_time(root: Root, timeout: float) -> None:
    ref = root.spawn(silent)
    with pytest.raises(AskTimeout, match=says("supervisors.ref.Ref.ask", timeout=0)):
        await ref.ask(Note("anybody?"), timeout=timeout)


async def test_a_limit_that_is_none_at_all_or_not_a_number_is_refused_or_for_ever(root: Root) -> None:
    ref = root.spawn(echo)
    assert await ref.ask(Note(1), timeout=float("inf")) == 1
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=r"timeout|NaN|non-negative"):
            await ref.ask(Note(1), timeout=wrong)
