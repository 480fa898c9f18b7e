"""The tasks that actors run in are used again, and an actor can't tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context

import pytest
import trio
import trio.testing

from callboard.supervisors import Actor, Root

WORD: ContextVar[str] = ContextVar("word", default="unset")


async def task_of(_: Actor) -> trio.lowlevel.Task:
    return trio.lowlevel.current_task()


async def test_an_actor_runs_in_the_task_of_one_that_has_ended() -> None:
    async with Root() as root:
        first = await root.spawn(task_of).result()
        await trio.lowlevel.checkpoint()
        assert await root.spawn(task_of).result() is first


async def test_what_an_actor_sets_is_unset_for_the_next_one_in_its_task() -> None:
    async def says(_: Actor) -> str:
        before = WORD.get()
        WORD.set("said")
        return before

    async with Root() as root:
        for _ in range(3):
            assert await root.spawn(says).result() == "unset"
            await trio.lowlevel.checkpoint()


async def test_an_interrupted_actor_leaves_no_interruption_to_the_next_one_in_its_task() -> None:
    async def sleeps(_: Actor) -> None:
        await trio.sleep_forever()

    async with Root() as root:
        for _ in range(3):
            ref = root.spawn(sleeps)
            await trio.testing.wait_all_tasks_blocked()
            ref.cancel()
            assert (await ref.wait()).reason == "cancelled"
            await trio.lowlevel.checkpoint()
            assert isinstance(await root.spawn(task_of).result(), trio.lowlevel.Task)


async def test_idle_tasks_share_no_context_with_those_of_other_threads() -> None:
    """A context can be entered once: two roots that wake theirs at the same moment would both fail."""
    async with Root() as root:
        refs = [root.spawn(task_of) for _ in range(3)]
        for ref in refs:
            await ref.wait()
        await trio.testing.wait_all_tasks_blocked()
        contexts = [task.context for task in root.workers.idle]
        assert len(contexts) == 3
        assert len({id(context) for context in contexts}) == 3
        assert not any(context.get(WORD) for context in contexts)


def launched(me: Actor, body: Callable[..., Awaitable[object]], many: int) -> list[Actor]:
    """So many children that run `body`, launched in a row."""
    context = copy_context()
    children = [me.adopt(body, (), name=None, bond="watched") for _ in range(many)]
    for child in children:
        child.launch_soon(context)
    return children


async def test_actors_of_many_contexts_take_a_turn_of_the_loop_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs have contexts of their own: a thousand that launch a call at the same moment once took a million turns."""
    turns = 0
    checkpoint = trio.lowlevel.cancel_shielded_checkpoint

    async def counted() -> None:
        nonlocal turns
        turns += 1
        await checkpoint()

    async def says(_: Actor) -> str:
        return WORD.get()

    async def starter(me: Actor) -> list[str]:
        children = []
        for number in range(500):
            WORD.set(str(number))
            children += launched(me, says, 1)
        return [str((await child.wait_over()).value) for child in children]

    monkeypatch.setattr(trio.lowlevel, "cancel_shielded_checkpoint", counted)
    async with Root() as root:
        assert await root.spawn(starter).result() == [str(number) for number in range(500)]
    assert turns <= 500


async def test_actors_launched_in_a_row_that_do_not_wait_share_a_few_tasks() -> None:
    async def starter(me: Actor) -> int:
        children = launched(me, task_of, 1_000)
        ends = [await child.wait_over() for child in children]
        return len({end.value for end in ends})

    async with Root() as root:
        assert await root.spawn(starter).result() < 20


async def test_actors_launched_in_a_row_that_wait_have_a_task_each_within_a_dozen_turns() -> None:
    begun = 0

    async def waits(_: Actor) -> None:
        nonlocal begun
        begun += 1
        await trio.sleep_forever()

    async def starter(me: Actor) -> int:
        launched(me, waits, 1_000)
        turns = 0
        while begun < 1_000:
            turns += 1
            await trio.lowlevel.checkpoint()
        return turns

    async with Root() as root:
        assert await root.spawn(starter).result() <= 12


async def test_other_tasks_get_their_turn_between_actors_that_do_not_wait() -> None:
    most = since = 0

    async def counts(_: Actor) -> None:
        nonlocal since, most
        since += 1
        most = max(most, since)

    async def starter(me: Actor) -> None:
        nonlocal since
        children = launched(me, counts, 200)
        while any(child.end is None for child in children):
            since = 0
            await trio.lowlevel.checkpoint()

    async with Root() as root:
        await root.spawn(starter).result()
    assert 1 < most <= 16 * 8  # a few tasks at a time, each with its 16


async def test_each_of_the_actors_launched_in_a_row_has_the_variables_of_its_launch() -> None:
    async def says(_: Actor) -> str:
        before = WORD.get()
        WORD.set("said")
        return before

    async def starter(me: Actor) -> list[object]:
        children: list[Actor] = []
        for word in ("one", "two", "two", "one"):
            WORD.set(word)
            children += launched(me, says, 2)
        return [(await child.wait_over()).value for child in children]

    async with Root() as root:
        assert await root.spawn(starter).result() == ["one"] * 2 + ["two"] * 4 + ["one"] * 2


async def test_an_actor_that_is_interrupted_before_its_task_is_free_ends_as_cancelled() -> None:
    async def waits(_: Actor) -> None:
        await trio.sleep_forever()

    async def starter(me: Actor) -> list[str]:
        children = launched(me, waits, 50)
        for child in children:
            child.interrupt()
        return [(await child.wait_over()).reason for child in children]

    async with Root() as root:
        assert await root.spawn(starter).result() == ["cancelled"] * 50
