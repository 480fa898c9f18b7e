"""What actors take of memory: estimated for those within our process, measured for those of processes."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from support.waiting import PATIENCE

from callboard.protocol.kernel.messages import Message
from callboard.supervisors import Actor, Ref, Root, start_process
from callboard.supervisors import memory as measuring
from callboard.supervisors.memory import MOST, SLICE, Memory, memory_of

MB = 1_000_000


class TeamMessage(Message, frozen=True):
    text: str


class Box:
    """An object of an actor's own, with what is in it."""

    def __init__(self, what: object) -> None:
        self.what = what

    def remembers(self) -> Iterable[object]:
        return (self.what,)

    async def run(self, me: Actor) -> None:
        async for _ in me:
            pass


def texts() -> list[str]:
    return [f"{number:0100}" for number in range(33_000)]  # 149 bytes each, and 8 for the place in the list


async def measured(root: Root, ref: Ref) -> int:
    await trio.testing.wait_all_tasks_blocked()
    memory = Memory(root)
    await memory.measure([ref._actor])
    return memory.of(ref._actor)


async def idle(me: Actor) -> None:
    async for _ in me:
        pass


async def holds(me: Actor, make: Callable[[], object]) -> None:
    held = make()
    await idle(me)
    del held


async def given(me: Actor, what: object) -> None:
    await idle(me)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytes(5 * MB),
        texts,
        lambda: dict(enumerate(texts())),
        lambda: Box({"a": [bytearray(2 * MB)], "b": (TeamMessage("x" * (3 * MB)),)}),
        lambda: [TeamMessage(text) for text in texts()[:26_000]],
    ],
    ids=["bytes", "list", "dict", "object", "structs"],
)
async def test_105_an_actor_that_holds_5_mb_shows_about_5_mb(make: Callable[[], object]) -> None:
    async with Root() as root:
        assert await measured(root, root.spawn(holds, make)) == pytest.approx(5 * MB, rel=0.25)
        assert await measured(root, root.spawn(given, make())) == pytest.approx(5 * MB, rel=0.25)
        assert await measured(root, root.spawn(Box(make()).run)) == pytest.approx(5 * MB, rel=0.25)
        assert await measured(root, root.spawn(partial(given, what=make()))) == pytest.approx(5 * MB, rel=0.25)


async def test_an_idle_actor_shows_little() -> None:
    async with Root() as root:
        assert 0 < await measured(root, root.spawn(idle)) < 5_000


async def test_a_frame_that_an_actor_keeps_undecoded_counts_as_its_bytes() -> None:
    """`sys.getsizeof(msgspec.Raw)` is a pointer: an actor that held one showed 140,000 GB."""
    async with Root() as root:
        assert MB < await measured(root, root.spawn(holds, lambda: msgspec.Raw(b"1" * MB))) < 2 * MB


async def test_mail_that_waits_counts_for_who_has_to_read_it() -> None:
    async with Root() as root:

        async def busy(me: Actor) -> None:
            await trio.sleep_forever()

        ref = root.spawn(busy)
        for _ in range(5):
            await ref.tell(TeamMessage("x" * MB))
        assert await measured(root, ref) == pytest.approx(5 * MB, rel=0.01)


async def test_what_others_hold_as_well_counts_for_nobody() -> None:
    shared = texts()
    async with Root() as root:
        for ref in (root.spawn(given, shared), root.spawn(holds, lambda: [shared, {"x": shared}])):
            assert await measured(root, ref) < 5_000


async def test_what_an_actor_remembers_counts_for_it_whoever_else_looks_at_it() -> None:
    box = Box({"history": texts()})

    async def body(me: Actor) -> None:
        me.keeps = box
        await idle(me)

    async with Root() as root:
        assert await measured(root, root.spawn(body)) == pytest.approx(5 * MB, rel=0.1)


async def test_memory_in_what_is_remembered_ends_at_other_actors_modules_and_code() -> None:
    async def body(me: Actor) -> None:
        me.keeps = Box([me, me.root, sys, Box, idle, print, box.run, me.root.actor])
        await idle(me)

    box = Box(texts())
    async with Root() as root:
        assert await measured(root, root.spawn(body)) < 200_000


async def test_the_actor_of_a_process_shows_its_process_with_all_below_it() -> None:
    below = "b = bytes(range(256)) * 200_000; input()"
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{below}'])"
    async with Root() as root:

        async def body(me: Actor) -> None:
            await start_process(me, [sys.executable, "-c", f"{child}; print(1, flush=True); input()"], stdin="pipe")
            await trio.sleep_forever()

        root.spawn(body)
        memory = Memory(root)
        with trio.fail_after(PATIENCE):
            while max((memory.of(actor) for actor in _all(root)), default=0) < 51_200_000:
                memory = Memory(root)
                await memory.measure(_all(root))
                await trio.sleep(0.05)


def _all(root: Root) -> list[Actor]:
    from callboard.supervisors.introspection import census

    return list(census(root))


async def test_a_thousand_actors_are_measured_without_holding_others_up(
    mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks get a turn after each slice of time, and `MOST` objects of an actor are looked at, however many."""
    looked_at = 0
    parts, seconds = measuring._parts, itertools.count(step=SLICE / 2)

    def counted(thing: Any) -> tuple[list[Any], float]:
        nonlocal looked_at
        looked_at += 1
        return parts(thing)

    async with Root() as root:

        def letters() -> list[list[TeamMessage]]:
            return [[TeamMessage(f"{number}") for number in range(20)] for _ in range(20)]

        refs = [root.spawn(holds, letters) for _ in range(1_000)]
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.setattr(measuring, "_parts", counted)
        monkeypatch.setattr(measuring, "perf_counter", lambda: next(seconds))  # each actor takes half a slice
        memory, done = Memory(root), False
        in_a_row = [0]

        async def others() -> None:
            while not done:
                known = len(memory._known)
                await trio.lowlevel.checkpoint()
                in_a_row.append(len(memory._known) - known)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            await memory.measure(ref._actor for ref in refs)
            done = True
        assert all(memory.of(ref._actor) > 10_000 for ref in refs)
        assert 1 <= max(in_a_row) <= 6, "two slices: trio runs the tasks of a batch in any order"
        assert looked_at <= MOST * len(refs)
        looked_at = 0
        await memory.measure(ref._actor for ref in refs)
        assert looked_at == 0, "they are fresh"


async def test_figures_of_actors_that_have_ended_do_not_pile_up() -> None:
    async with Root() as root:
        memory = Memory(root)
        for _ in range(5):
            refs = [root.spawn(idle) for _ in range(500)]
            await trio.testing.wait_all_tasks_blocked()
            await memory.measure(ref._actor for ref in refs)
            for ref in refs:
                ref.cancel()
            await trio.testing.wait_all_tasks_blocked()
        assert len(memory._known) <= 1_500


def test_memory_of_processes_counts_children_and_is_none_for_the_dead() -> None:
    alone = memory_of([os.getpid()])[os.getpid()]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as child:
        assert memory_of([os.getpid()])[os.getpid()] > alone
        child.communicate("\n")
    assert memory_of([child.pid]) == {}


async def test_an_actor_that_was_measured_is_forgotten_with_its_end(root: Root) -> None:
    box = Box(None)
    gone = weakref.ref(box)
    ref = root.spawn(box.run)
    await trio.testing.wait_all_tasks_blocked()
    memory = Memory(root)
    await memory.measure([ref._actor])
    await ref.stop()
    del ref, box
    gc.collect()
    assert gone() is None
