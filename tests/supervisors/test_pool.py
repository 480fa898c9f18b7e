"""What a pool promises: one start per key, shared while leased, closed in time, never under a lessee.

Numbers are those of docs/kernel.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from support.messages import says
from trio.testing import wait_all_tasks_blocked

from callboard.protocol.errors import ActorFailed, PoolClosed, TooManyRestarts
from callboard.protocol.events import ActorRestarted, Event
from callboard.supervisors import Actor, Backoff, Breaker, Pool, Root


class Shop:
    """Opens resources and keeps a diary of it. `gate` holds starts back, `broken` keys fail to start."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.gate = trio.Event()
        self.gate.set()
        self.broken: set[str] = set()
        self.sick: set[str] = set()
        self.actors: dict[str, Actor] = {}
        self.close_takes = 0.0

    @asynccontextmanager
    async def open(self, me: Actor, key: str) -> AsyncIterator[str]:
        self.diary.append(f"start {key}")
        self.actors[key] = me
        task = trio.lowlevel.current_task()
        await self.gate.wait()
        if key in self.broken:
            raise OSError(f"no {key} today")
        try:
            yield f"{key}!"
        finally:
            assert trio.lowlevel.current_task() is task
            if self.close_takes:
                with me.cleanup():
                    await trio.sleep(self.close_takes)
            self.diary.append(f"close {key}")

    async def healthy(self, resource: str) -> bool:
        self.diary.append(f"check {resource}")
        return resource.rstrip("!") not in self.sick

    @property
    def starts(self) -> list[str]:
        return [line for line in self.diary if line.startswith("start")]


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def lease_for(pool: Pool[str, str], key: str, seconds: float) -> str:
    async with pool.lease(key) as resource:
        await trio.sleep(seconds)
        return resource


# --- one start per key -------------------------------------------------------------------------------------


async def test_65_a_thousand_first_leases_of_one_key_make_one_start(root: Root, shop: Shop) -> None:
    shop.gate = trio.Event()
    pool = Pool(root, shop.open)
    got: list[str] = []

    async def user() -> None:
        async with pool.lease("a") as resource:
            got.append(resource)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(user)
        await wait_all_tasks_blocked()
        shop.gate.set()
    assert got == ["a!"] * 1000
    assert shop.diary == ["start a"]
    assert pool.statistics.opened == 1
    assert pool.statistics.misses == 1000
    assert (pool.statistics.leased, pool.statistics.idle) == (0, 1)


async def test_65_different_keys_start_side_by_side(root: Root, shop: Shop) -> None:
    shop.gate = trio.Event()
    pool = Pool(root, shop.open)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.warm, "a")
        nursery.start_soon(pool.warm, "b")
        await wait_all_tasks_blocked()
        assert sorted(shop.diary) == ["start a", "start b"]
        shop.gate.set()


async def test_66_a_failed_start_fails_all_who_wait_and_the_next_lease_tries_again(root: Root, shop: Shop) -> None:
    shop.gate = trio.Event()
    shop.broken.add("a")
    pool = Pool(root, shop.open)
    errors: list[ActorFailed] = []

    async def user() -> None:
        with pytest.raises(
            ActorFailed, match=says("supervisors.pool.Pool.wait_for.4", path="/pool/a", why="no a today")
        ) as caught:
            await pool.warm("a")
        errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(user)
        await wait_all_tasks_blocked()
        shop.gate.set()
    assert len({id(error) for error in errors}) == 5, "each waiter has an error of its own"
    assert all(isinstance(error.__cause__, OSError) for error in errors)
    assert shop.diary == ["start a"]
    shop.broken.clear()
    await pool.warm("a")
    assert shop.diary == ["start a", "start a"]
    assert pool.statistics.failed_starts == 1


async def test_66_with_a_breaker_starts_that_fail_wait_longer_and_longer_and_then_fail_at_once(
    root: Root, shop: Shop
) -> None:
    shop.broken.add("a")
    breaker = Breaker(most=4, cooldown=30.0, backoff=Backoff(first=1.0, jitter=0.0))
    told: list[tuple[str, str, float]] = []
    pool = Pool(
        root,
        shop.open,
        breaker=lambda _: breaker,
        on_start=lambda me, key, wait: told.append((me.path, key, wait)),
    )
    events: list[Event] = []
    with root.bus.listen(events.append):
        for _ in range(4):
            with pytest.raises(ActorFailed, match="no a today"):
                await pool.warm("a")
        for _ in range(2):
            with pytest.raises(
                TooManyRestarts, match=says("supervisors.policy.Breaker.check", _most=4, now=30, error="no a today")
            ):
                await pool.warm("a")
    assert told == [("/pool/a", "a", wait) for wait in (0, 0, 1, 2)]
    assert trio.current_time() == 3.0
    assert [event.data.restarts for event in events if isinstance(event.data, ActorRestarted)] == [1, 2, 3]
    await trio.sleep(30)
    shop.broken.clear()
    await pool.warm("a")
    assert breaker.state(trio.current_time()) == "half-open"
    breaker.worked()
    assert (breaker.state(trio.current_time()), breaker.restarts) == ("closed", 4)


async def test_66_with_a_breaker_what_was_lost_has_failed_and_what_was_stopped_has_not(root: Root, shop: Shop) -> None:
    breaker = Breaker(most=2)
    pool = Pool(root, shop.open, breaker=lambda _: breaker)
    for _ in range(2):
        await pool.warm("a")
        await pool.reload("a")
    assert (breaker.failures, breaker.restarts) == (0, 0)
    async with pool.lease("a"):
        shop.actors["a"].ref.cancel()
    await wait_all_tasks_blocked()
    lease = pool.lease("a")
    await lease.acquire()
    lease.report_lost(OSError("it hung up"))
    lease.release()
    await wait_all_tasks_blocked()
    assert (breaker.failures, breaker.error) == (1, "it hung up")


async def test_67_a_cancelled_lessee_does_not_cancel_the_start_for_the_others(root: Root, shop: Shop) -> None:
    shop.gate = trio.Event()
    pool = Pool(root, shop.open)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.warm, "a")
        with trio.move_on_after(1):
            await pool.warm("a")
        assert shop.diary == ["start a"]
        shop.gate.set()
    assert "a" in pool


async def test_67_a_start_that_nobody_waits_for_any_more_is_cancelled(root: Root, shop: Shop) -> None:
    shop.gate = trio.Event()
    pool = Pool(root, shop.open)
    with trio.move_on_after(1):
        await pool.warm("a")
    await wait_all_tasks_blocked()
    assert not shop.actors["a"].ref.alive
    shop.gate.set()
    await pool.warm("a")
    assert shop.diary == ["start a", "start a"]
    assert pool.statistics.failed_starts == 0


async def test_65_a_new_holder_of_a_key_begins_when_the_old_one_has_ended(root: Root, shop: Shop) -> None:
    shop.close_takes = 0.75
    pool = Pool(root, shop.open, idle_ttl=10)
    await pool.warm("a")
    await trio.sleep(10.5)  # its closing has begun
    assert "a" not in pool
    await pool.warm("a")
    assert shop.diary == ["start a", "close a", "start a"]


# --- sharing and closing -----------------------------------------------------------------------------------


async def test_68_an_open_resource_is_shared_without_a_checkpoint(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open)
    await pool.warm("a")
    with trio.testing.assert_no_checkpoints():
        async with pool.lease("a") as one, pool.lease("a") as two:
            assert one is two
            assert pool.statistics.leased == 1
    assert pool.statistics.hits == 2
    assert shop.starts == ["start a"]


async def test_69_an_idle_resource_is_closed_after_its_ttl_and_use_starts_it_anew(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open, idle_ttl=10)
    await pool.warm("a")
    await trio.sleep(9)
    await pool.warm("a")
    await trio.sleep(9)
    assert "a" in pool
    await trio.sleep(1.01)
    assert "a" not in pool
    assert shop.diary == ["start a", "close a"]
    assert pool.statistics.evicted_idle == 1


async def test_68_a_leased_resource_is_never_reaped(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open, idle_ttl=1, max_idle=0)
    async with pool.lease("a"):
        async with pool.lease("a"):
            await trio.sleep(1000)
        await trio.sleep(1000)
        assert shop.diary == ["start a"]
    await wait_all_tasks_blocked()
    assert shop.diary == ["start a", "close a"]


async def test_69_beyond_max_idle_the_least_recently_used_goes_first(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open, max_idle=2)
    for key in ("a", "b", "a", "c"):
        await pool.warm(key)
    await wait_all_tasks_blocked()
    assert shop.diary == ["start a", "start b", "start c", "close b"]
    assert pool.statistics.evicted_lru == 1
    assert pool.statistics.idle == 2


async def test_70_max_open_closes_an_idle_one_to_make_room(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open, max_open=2)
    for key in ("a", "b", "c"):
        await pool.warm(key)
    assert shop.diary == ["start a", "start b", "close a", "start c"]


async def test_70_max_open_makes_starts_wait_in_the_order_they_came(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open, max_open=1)
    order: list[str] = []

    async def user(key: str) -> None:
        async with pool.lease(key):
            order.append(key)
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        for key in "abcdefgh":
            nursery.start_soon(user, key)
            await wait_all_tasks_blocked()
    assert order == list("abcdefgh")
    assert pool.statistics.waits == 7


async def test_70_a_cancelled_wait_for_room_gives_its_place_away(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open, max_open=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lease_for, pool, "a", 10)
        await wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await pool.warm("b")
        nursery.start_soon(lease_for, pool, "c", 1)
    assert shop.diary[:3] == ["start a", "close a", "start c"]


# --- death and health --------------------------------------------------------------------------------------


async def test_71_lessees_learn_that_their_resource_died_and_the_next_lease_starts_a_new_one(
    root: Root, shop: Shop
) -> None:
    pool = Pool(root, shop.open)

    async def dies(me: Actor) -> None:
        raise ConnectionError("gone")

    lease = pool.lease("a")
    async with lease:
        assert not lease.lost.is_set()
        shop.actors["a"].spawn(dies)  # linked: as a process that is watched would
        await lease.lost.wait()
        async with pool.lease("a") as again:
            assert again == "a!"
        assert "gone" in str(lease.error)
    assert shop.diary == ["start a", "close a", "start a"]
    assert pool.statistics.lost == 1
    assert pool.statistics.leased == 0


async def test_71_an_idle_resource_that_dies_is_forgotten(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open)
    await pool.warm("a")
    shop.actors["a"].ref.cancel()
    await wait_all_tasks_blocked()
    assert "a" not in pool
    assert pool.statistics.idle == 0


async def test_72_idle_resources_are_checked_and_the_sick_closed(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open, health=shop.healthy, health_interval=60)
    await pool.warm("a")
    await pool.warm("b")
    shop.sick.add("a")
    await trio.sleep(61)
    assert "a" not in pool
    assert "b" in pool
    assert (pool.statistics.health_ok, pool.statistics.health_failed) == (1, 1)


async def test_72_leased_resources_are_not_checked(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open, health=shop.healthy, health_interval=60)
    async with pool.lease("a"):
        await trio.sleep(600)
    assert shop.diary == ["start a"]
    await trio.sleep(61)
    assert shop.diary == ["start a", "check a!"]


async def test_72_a_check_that_hangs_or_raises_is_a_failed_check(root: Root, shop: Shop) -> None:
    async def hangs(resource: str) -> bool:
        if resource == "a!":
            await trio.sleep_forever()
        raise ValueError

    pool = Pool(root, shop.open, health=hangs, health_interval=5)
    await pool.warm("a")
    await pool.warm("b")
    await trio.sleep(5.5)
    assert ("a" in pool, "b" in pool) == (True, False)
    await trio.sleep(5)
    assert "a" not in pool


# --- reload and close --------------------------------------------------------------------------------------


async def test_73_reload_waits_for_the_lessees_and_opens_anew(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lease_for, pool, "a", 10)
        await wait_all_tasks_blocked()
        nursery.start_soon(pool.reload, "a")
        await wait_all_tasks_blocked()
        assert shop.diary == ["start a"]
        async with pool.lease("a"):  # waits for the new one
            assert trio.current_time() == pytest.approx(10)
            assert shop.diary == ["start a", "close a", "start a"]


async def test_73_reload_without_a_key_reloads_what_is_open(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open)
    await pool.warm("a")
    await pool.warm("b")
    shop.broken.update("ab")
    with pytest.raises(ExceptionGroup, match=says("supervisors.pool.Pool.reload", errors=2)):
        await pool.reload()
    shop.broken.clear()
    await pool.warm("c")
    await pool.reload()
    assert shop.starts.count("start c") == 2
    assert "a" not in pool


async def test_74_after_close_there_are_no_leases(root: Root, shop: Shop) -> None:
    pool = Pool(root, shop.open, name="things")
    lease = pool.lease("a")
    async with lease:
        await pool.close()
        assert lease.lost.is_set()
        with pytest.raises(PoolClosed, match=says("supervisors.pool.Pool.wait_for", path="/things")):
            await pool.warm("a")
    assert shop.diary == ["start a", "close a"]


async def test_74_close_fails_those_who_wait_for_a_start(root: Root, shop: Shop) -> None:
    shop.gate = trio.Event()
    pool = Pool(root, shop.open)
    async with trio.open_nursery() as nursery:

        async def user() -> None:
            with pytest.raises(PoolClosed):
                await pool.warm("a")

        nursery.start_soon(user)
        await wait_all_tasks_blocked()
        await pool.close()


async def test_74_the_end_of_the_owner_closes_all_resources_side_by_side(root: Root, shop: Shop) -> None:
    shop.close_takes = 0.9

    async def owner(me: Actor) -> None:
        pool = Pool(me, shop.open)
        for key in "abcdefghij":
            await pool.warm(key)
        me.started()
        await trio.sleep_forever()

    ref = await root.start(owner)
    before = trio.current_time()
    await ref.stop()
    assert len([line for line in shop.diary if line.startswith("close")]) == 10
    assert trio.current_time() - before <= 1.0 + 0.9 + 0.01  # its own second of politeness, and theirs together


async def test_74_a_pool_of_a_root_that_stops_refuses_leases(
    autojump_clock: trio.testing.MockClock, shop: Shop
) -> None:
    async with Root() as root:
        pool = Pool(root, shop.open)
        root.begin_stop()
        with pytest.raises(PoolClosed):
            await pool.warm("a")


async def test_74_an_unclosable_resource_is_interrupted_in_the_middle_of_its_closing(root: Root) -> None:
    @asynccontextmanager
    async def stubborn(me: Actor, key: str) -> AsyncIterator[str]:
        try:
            yield key
        finally:
            await trio.sleep_forever()

    pool = Pool(root, stubborn, idle_ttl=1, stop_within=2)
    await pool.warm("a")
    await trio.sleep(3.5)
    assert root.actor.children[0].alive
    before = trio.current_time()
    await pool.warm("a")
    assert trio.current_time() == before, "the old one is gone already"


async def test_opening_and_closing_are_events(root: Root, shop: Shop, events: list[Event]) -> None:
    pool = Pool(root, shop.open, idle_ttl=1)
    await pool.warm("a/b")
    await trio.sleep(2)
    kinds = [(event.kind, event.actor) for event in events if event.actor == "/pool/a-b"]
    assert [kind for kind, _ in kinds] == ["actor.spawned", "pool.opened", "pool.closed", "actor.stopped"]
    closed = next(event for event in events if event.kind == "pool.closed")
    assert closed.data.reason == "idle"


async def test_a_resource_is_opened_in_the_context_of_the_pool_not_of_its_first_lessee(root: Root) -> None:
    import contextvars

    whose = contextvars.ContextVar("whose", default="pool")
    seen: list[str] = []

    @asynccontextmanager
    async def open_it(me: Actor, key: str) -> AsyncIterator[str]:
        seen.append(whose.get())
        yield key

    pool = Pool(root, open_it)
    whose.set("lessee")
    await pool.warm("a")
    assert seen == ["pool"]


async def test_random_use_keeps_the_counters_right(root: Root, shop: Shop) -> None:
    """Leases, deaths, cancels and reloads in any order: never two of one key, and nothing is left leased."""
    import random

    rand = random.Random(7)
    alive: dict[str, int] = {}

    @asynccontextmanager
    async def open_it(me: Actor, key: str) -> AsyncIterator[str]:
        assert alive.get(key, 0) == 0
        alive[key] = 1
        try:
            await trio.sleep(rand.random())
            if rand.random() < 0.2:
                raise OSError("no")
            shop.actors[key] = me
            yield key
        finally:
            alive[key] = 0

    pool = Pool(root, open_it, idle_ttl=2, max_idle=2, max_open=3)

    async def user() -> None:
        for _ in range(20):
            key = rand.choice("abcdef")
            with trio.move_on_after(rand.random() * 3):
                try:
                    async with pool.lease(key):
                        assert sum(alive.values()) <= 3
                        await trio.sleep(rand.random())
                        if rand.random() < 0.1:
                            shop.actors[key].ref.cancel()
                except ActorFailed:
                    pass

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(user)
    assert pool.statistics.leased == 0
    await trio.sleep(10)
    assert pool.statistics.idle == 0
    assert sum(alive.values()) == 0
    for key in "abc":
        with trio.move_on_after(100):
            while key not in pool:
                with suppress(ActorFailed):
                    await pool.warm(key)
        assert key in pool, "no slot was lost"
