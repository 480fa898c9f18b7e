"""What has happened and what happens: one sequence, without a gap or a doubling, whoever reads it and when."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing
from support.control_hub import MadeRun, hub_of
from support.messages import says

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.subscriptions import Lagged, Subscription
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.errors import UsageError


async def _read(hub: Hub, run: str, dice: random.Random, after: int, lags: list[int]) -> list[int]:
    """All events after a number, with pauses, breaks and new subscriptions as the dice fall."""
    seen: list[int] = []
    while True:
        with hub.subscribe(LOCAL, run, after) as events:
            try:
                async for event in events:
                    assert msgspec.json.decode(event.data)["seq"] == event.seq
                    seen.append(event.seq)
                    after = event.seq
                    if dice.random() < 0.1:
                        for _ in range(dice.randrange(30)):
                            await trio.lowlevel.checkpoint()
                    if dice.random() < 0.05:
                        break  # and come back
                else:
                    return seen
            except Lagged as lagged:
                lags.append(lagged.after)
                if lagged.after != after:
                    return []


async def _interleave(root: callboard.Root, hub: Hub, seed: int) -> int:
    dice = random.Random(seed)
    run = MadeRun(root, f"run-{seed}x")
    words = dice.randrange(1, 120)
    readers: list[list[int]] = []
    lags: list[int] = []

    async def reader(after: int) -> None:
        seen = await _read(hub, run.id, random.Random(dice.random()), after, lags)
        assert seen == list(range(after + 1, total + 1))
        readers.append(seen)

    total = words + 3  # run.started, actor.spawned, run.finished
    wanted = 0
    async with trio.open_nursery() as nursery:
        for _ in range(words):
            run.say("x" * dice.choice((1, 1, 1, 2000)))
            if dice.random() < 0.1:
                wanted += 1
                nursery.start_soon(reader, dice.randint(0, hub.get(LOCAL, run.id).seq))
            for _ in range(dice.choice((0, 0, 1, 3, 20))):
                await trio.lowlevel.checkpoint()
            if dice.random() < 0.02:
                await hub.logs.flush()
        run.end()
        wanted += 1
        nursery.start_soon(reader, dice.randint(0, total))
    assert len(readers) == wanted
    return len(lags)


SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(8, 80))]


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_reader_gets_every_event_once_whenever_it_comes(
    root: callboard.Root, tmp_path: Path, seed: int
) -> None:
    async with hub_of(root, tmp_path / "state", ring_events=8, ring_bytes=8_000) as hub:
        with trio.fail_after(60):
            for part in range(4):
                await _interleave(root, hub, seed * 10 + part)


async def _exhaust(events: Subscription) -> None:
    async for _ in events:
        pass


async def test_a_slow_reader_is_told_and_loses_nothing(root: callboard.Root, hub: Hub) -> None:
    run = MadeRun(root, "run-slow")
    with hub.subscribe(LOCAL, run.id) as events:
        assert (await anext(events)).seq == 1
        for _ in range(100):
            run.say()
        with pytest.raises(Lagged) as lagged:
            await _exhaust(events)
        after = events.seq
    assert (lagged.value.after, lagged.value.seq) == (after, hub.get(LOCAL, run.id).seq)
    run.end()
    with hub.subscribe(LOCAL, run.id, after) as events:
        assert [event.seq async for event in events] == list(range(after + 1, 104))


async def test_the_memory_of_a_run_is_bounded_whoever_reads(root: callboard.Root, tmp_path: Path) -> None:
    async with hub_of(root, tmp_path / "state", ring_events=1000, ring_bytes=100_000) as hub:
        run = MadeRun(root, "run-big")
        with hub.subscribe(LOCAL, run.id):
            for _ in range(100):
                run.say("x" * 10_000)
            record = hub.running.live[run.id]
            assert sum(len(event.data) for event in record.ring) <= 110_000
        run.end()


async def test_a_reader_beyond_the_newest_event_is_refused(root: callboard.Root, hub: Hub) -> None:
    run = MadeRun(root, "run-early")
    for after in (-1, 99):
        with pytest.raises(UsageError, match=says("front.control.hub.Hub.subscribe")):
            hub.subscribe(LOCAL, run.id, after)
    run.end()


async def test_a_page_and_a_subscription_tell_the_same(root: callboard.Root, hub: Hub) -> None:
    run = MadeRun(root, "run-pages")
    for _ in range(60):
        run.say()
    run.end()
    paged = []
    after = 0
    while page := await hub.events(LOCAL, run.id, after, 7):
        paged += [event.data for event in page]
        after = page[-1].seq
    with hub.subscribe(LOCAL, run.id) as events:
        assert [event.data async for event in events] == paged
    assert len(paged) == 63


async def test_a_reader_that_is_cancelled_leaves_the_run_alone(root: callboard.Root, hub: Hub) -> None:
    run = MadeRun(root, "run-left")

    async def read() -> None:
        with hub.subscribe(LOCAL, run.id) as events:
            async for _ in events:
                pass

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(partial(read))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    run.say()
    run.end()
    assert (await hub.wait(LOCAL, run.id)).output == "made"
