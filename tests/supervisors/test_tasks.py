"""The tasks that actors run in are used again, and an actor can't tell."""

from __future__ import annotations

from contextvars import ContextVar

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
        contexts = [task.context for task in root.idle]
        assert len(contexts) == 3
        assert len({id(context) for context in contexts}) == 3
        assert not any(context.get(WORD) for context in contexts)
