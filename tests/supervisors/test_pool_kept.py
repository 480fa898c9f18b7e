"""What a pool promises about leases that are kept for longer than they are used.

Numbers are those of docs/kernel.md.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from support.messages import says
from trio.testing import wait_all_tasks_blocked

from callboard.supervisors import Actor, Lease, Pool, Root


class Shop:
    """Opens resources and knows which are open."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.actors: dict[str, Actor] = {}

    @asynccontextmanager
    async def opener(self, me: Actor, key: str) -> AsyncIterator[str]:
        self.open.append(key)
        self.actors[key] = me
        try:
            yield f"{key}!"
        finally:
            self.open.remove(key)


@pytest.fixture
def shop() -> Shop:
    return Shop()


# --- leases without a block --------------------------------------------------------------------------------


async def test_94_a_lease_is_returned_in_another_task_than_it_was_taken_in(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.opener, idle_ttl=1)
    leases: list[Lease[str, str]] = []

    async def taker() -> None:
        lease = pool.lease("a")
        assert await lease.acquire() == "a!"
        leases.append(lease)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(taker)
    await trio.sleep(100)
    assert shop.open == ["a"]
    with trio.testing.assert_no_checkpoints():
        leases[0].release()
    await trio.sleep(2)
    assert shop.open == []


async def test_94_the_second_return_of_a_lease_does_nothing(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.opener)
    one, two = pool.lease("a"), pool.lease("a")
    await one.acquire()
    await two.acquire()
    one.release()
    one.release()
    assert pool.leases("a") == 1
    assert (pool.statistics.leased, pool.statistics.idle) == (1, 0)
    two.release()
    assert (pool.leases("a"), pool.leases("b")) == (0, 0)


async def test_94_only_a_lease_that_was_entered_can_be_returned(root: Root, shop: Shop) -> None:
    lease = Pool(root, shop.opener).lease("a")
    with pytest.raises(RuntimeError, match=says("supervisors.pool.Lease._entered")):
        lease.release()
    await lease.acquire()
    lease.release()


async def test_94_a_lease_that_is_cancelled_just_as_the_start_is_done_is_returned(root: Root) -> None:
    scope = trio.CancelScope()

    @asynccontextmanager
    async def opener(_me: Actor, key: str) -> AsyncIterator[str]:
        await trio.lowlevel.checkpoint()
        scope.cancel()  # and the start is done before the lessee gets to run
        yield key

    pool = Pool(root, opener, idle_ttl=1)
    with scope:
        await pool.lease("a").acquire()
    assert scope.cancelled_caught
    assert (pool.leases("a"), pool.statistics.leased, pool.statistics.idle) == (0, 0, 1)


async def test_94_a_start_that_nobody_wants_any_more_takes_no_room_with_it(root: Root, shop: Shop) -> None:
    """It waits for the end of the one before it, and is cancelled in the moment of that; in which order is chance."""
    pool = Pool(root, shop.opener, idle_ttl=0, max_open=1)

    async def give_up(scope: trio.CancelScope) -> None:
        with scope:
            await pool.warm("a")

    for _ in range(20):
        scope = trio.CancelScope()
        old = pool.lease("a")
        with trio.fail_after(5):
            await old.acquire()
            pool.retire("a")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(give_up, scope)
                await wait_all_tasks_blocked()
                nursery.start_soon(pool.warm, "b")  # the next in line
                await wait_all_tasks_blocked()
                shop.actors["a"].on_end(lambda _, scope=scope: scope.cancel())
                old.release()
    await trio.sleep(1)
    assert shop.open == []
    await pool.warm("a")


async def test_94_hits_that_woke_an_idle_resource_are_told_apart(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.opener)
    await pool.warm("a")
    async with pool.lease("a"), pool.lease("a"):
        pass
    counted = pool.statistics
    assert (counted.misses, counted.hits, counted.revived) == (1, 2, 1)


# --- time by key -------------------------------------------------------------------------------------------


async def test_95_each_key_has_its_own_time(root: Root, shop: Shop) -> None:
    seconds = {"short": 1.0, "none": 0.0, "long": 100.0, "kept": math.inf}
    pool = Pool(root, shop.opener, idle_ttl=seconds.__getitem__)
    for key in ("long", "kept", "short", "none"):
        await pool.warm(key)
    await trio.sleep(0.5)
    assert sorted(shop.open) == ["kept", "long", "short"]
    await trio.sleep(1)
    assert sorted(shop.open) == ["kept", "long"]
    await pool.warm("short")
    await trio.sleep(100)
    assert shop.open == ["kept"]
    await trio.sleep(10_000)
    assert shop.open == ["kept"]
    assert pool.statistics.evicted_idle == 4


async def test_95_the_least_recently_used_goes_first_whatever_its_time(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.opener, idle_ttl=lambda key: float(ord(key)), max_idle=2)
    for key in ("z", "a", "m"):
        await pool.warm(key)
        await trio.sleep(1)
    assert sorted(shop.open) == ["a", "m"]


async def test_95_what_is_kept_for_good_does_not_count_as_idle_and_goes_only_for_room(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.opener, idle_ttl=lambda key: math.inf if key.isupper() else 10, max_idle=1, max_open=3)
    for key in ("A", "B", "c"):
        await pool.warm(key)
        await trio.sleep(1)
    assert sorted(shop.open) == ["A", "B", "c"]
    await pool.warm("d")
    await wait_all_tasks_blocked()
    assert sorted(shop.open) == ["A", "B", "d"], "one that is not kept gives way first"
    async with pool.lease("d"), pool.lease("e"):
        assert sorted(shop.open) == ["B", "d", "e"], "then the kept one that was used least recently"


async def test_95_health_is_checked_in_every_line(root: Root, shop: Shop) -> None:
    asked: list[str] = []

    async def healthy(resource: str) -> bool:
        asked.append(resource)
        return resource != "B!"

    pool = Pool(root, shop.opener, idle_ttl=lambda key: math.inf if key.isupper() else 1000, health=healthy)
    for key in ("A", "B", "c"):
        await pool.warm(key)
    await trio.sleep(61)
    assert sorted(asked) == ["A!", "B!", "c!"]
    assert sorted(shop.open) == ["A", "c"]


# --- stale leases ------------------------------------------------------------------------------------------


async def test_96_a_lease_is_stale_from_the_moment_its_resource_is_retired_or_reloaded(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.opener)
    async with pool.lease("a") as _, pool.lease("b"):
        lease = pool.lease("b")
        await lease.acquire()
        assert not lease.stale
        pool.retire("b")
        pool.retire("nothing is open under this key")
        assert lease.stale
        assert not lease.lost.is_set()
        lease.release()
    await wait_all_tasks_blocked()
    assert shop.open == ["a"]
    async with pool.lease("a"):
        lease = pool.lease("a")
        await lease.acquire()
        with trio.move_on_after(1):
            await pool.reload("a")
        assert lease.stale
        lease.release()


async def test_96_a_lease_is_stale_when_its_resource_is_lost(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.opener)
    lease = pool.lease("a")
    await lease.acquire()
    shop.actors["a"].ref.cancel()
    await wait_all_tasks_blocked()
    assert lease.stale
    lease.release()
    assert pool.statistics.leased == 0


async def test_96_what_a_lessee_calls_lost_nobody_else_gets(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.opener)
    lease, other = pool.lease("a"), pool.lease("a")
    await lease.acquire()
    await other.acquire()
    first = shop.actors["a"]
    lease.report_lost()
    lease.report_lost()
    assert (lease.stale, other.stale, "a" in pool) == (True, True, False)
    lease.release()
    other.release()
    async with pool.lease("a"):
        assert shop.actors["a"] is not first
        assert shop.open == ["a"], "the old one had ended before the new one began"
        lease.report_lost()  # long gone; it is not about the new one
        assert "a" in pool
    assert pool.statistics.lost == 1


# --- room --------------------------------------------------------------------------------------------------


async def test_97_leases_that_are_only_kept_are_asked_back_when_somebody_needs_the_room(root: Root, shop: Shop) -> None:
    kept: dict[str, Lease[str, str]] = {}
    asked: list[bool] = []

    def make_room() -> None:
        asked.append(pool.crowded)
        kept.pop(next(iter(kept))).release()

    pool = Pool(root, shop.opener, max_open=2, make_room=make_room)
    for key in "abcd":
        kept[key] = pool.lease(key)
        await kept[key].acquire()
    assert list(kept) == ["c", "d"]
    assert shop.open == ["c", "d"]
    assert asked == [True, True]
    assert not pool.crowded
    for lease in kept.values():
        lease.release()


async def test_97_nobody_is_asked_while_something_is_idle(root: Root, shop: Shop) -> None:
    asked: list[bool] = []
    pool = Pool(root, shop.opener, max_open=1, make_room=lambda: asked.append(True))
    await pool.warm("a")
    await pool.warm("b")
    assert asked == []
    async with pool.lease("b"):
        with trio.move_on_after(1):
            await pool.warm("c")
        assert asked == [True], "and who returns nothing does no harm"
    await pool.warm("c")
    assert pool.statistics.seconds_waited == pytest.approx(1, abs=0.01)
