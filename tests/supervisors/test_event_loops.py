"""Calls between event loops: results, errors and cancellation cross whole; other threads may use the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from support.waiting import PATIENCE, POLL, until

from callboard.protocol.kernel.errors import ActorError, ShuttingDown
from callboard.protocol.kernel.events import Event
from callboard.protocol.kernel.questions import Question
from callboard.supervisors import Root
from callboard.supervisors.event_loops import Loop, LoopThread, new_reply


async def elsewhere(function: Any, *args: Any) -> Any:
    """Run an async function in an asyncio loop of another thread."""
    return await trio.to_thread.run_sync(lambda: asyncio.run(function(*args)))


def loop_of(root: Root) -> Loop:
    assert root.loop is not None
    return root.loop


async def test_a_question_is_answered_from_another_thread() -> None:
    answers: list[object] = []

    async def asks(me: Any) -> None:
        answers.append((await me.ask_person(Question(id="", actor="", text="Go?"))).value)

    async with Root(patient=True) as root:
        ref = root.spawn(asks, name="asks", link=False)
        await until(lambda: root.questions.open)
        (question,) = await trio.to_thread.run_sync(lambda: root.questions.open)
        assert await trio.to_thread.run_sync(root.questions.answer, question.id, "yes")
        await ref.wait()
        assert not await trio.to_thread.run_sync(root.questions.answer, question.id, "no")
    assert answers == ["yes"]


async def test_listeners_of_other_threads_hear_events_in_the_root_s_thread() -> None:
    heard: list[tuple[str, int]] = []

    def hear(event: Event) -> None:
        heard.append((event.kind, threading.get_ident()))

    def listen(root: Root) -> None:
        with root.bus.listen(hear):
            trio.from_thread.run(work, root)

    async def work(root: Root) -> None:
        await root.spawn(idle, name="idle", link=False).wait()

    async def idle(me: Any) -> None:
        pass

    async with Root() as root:
        await trio.to_thread.run_sync(listen, root)
        before = len(heard)
        await work(root)
    assert len(heard) == before > 0
    assert {thread for _, thread in heard} == {threading.get_ident()}


async def test_another_thread_may_stop_a_root() -> None:
    async with Root() as root:
        ref = root.spawn(_forever, name="forever", link=False)
        await trio.to_thread.run_sync(root.begin_stop)
        assert (await ref.wait()).reason == "cancelled"


async def test_what_a_call_returns_or_raises_comes_back_as_it_is() -> None:
    class Mine(BaseException):
        pass

    async def value() -> int:
        return 5

    async def error() -> None:
        raise Mine

    async def main(root: Root) -> None:
        assert await loop_of(root).call(value) == 5
        with pytest.raises(Mine):
            await loop_of(root).call(error)

    async with Root() as root:
        await elsewhere(main, root)
        await trio.to_thread.run_sync(trio.run, main, root)
        assert await trio.to_thread.run_sync(loop_of(root).call_blocking, value) == 5


async def test_a_cancelled_call_has_ended_when_the_cancellation_is_raised() -> None:
    steps: list[str] = []

    async def slow() -> None:
        steps.append("began")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            steps.append("cleaned up")

    async def main(root: Root) -> None:
        task = asyncio.create_task(loop_of(root).call(slow))
        async with asyncio.timeout(PATIENCE):
            while not steps:
                await asyncio.sleep(POLL)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert steps == ["began", "cleaned up"]

    async with Root() as root:
        await elsewhere(main, root)
        assert loop_of(root).calls == set()


async def test_calls_that_the_end_of_the_root_ends_raise_shutting_down() -> None:
    started = threading.Event()

    async def forever() -> None:
        started.set()
        await trio.sleep_forever()

    async def main(root: Root) -> None:
        with pytest.raises(ShuttingDown):
            await loop_of(root).call(forever)
        with pytest.raises(ShuttingDown):
            await loop_of(root).call(forever)

    async with trio.open_nursery() as nursery, Root() as root:
        nursery.start_soon(elsewhere, main, root)
        await until(started.is_set)


async def test_the_first_delivery_of_a_result_counts() -> None:
    import outcome

    reply = new_reply()
    reply.deliver(outcome.Value(1))
    reply.deliver(outcome.Value(2))
    assert await reply.wait(lambda: None) == 1


async def test_a_result_needs_an_event_loop_to_wait_in() -> None:
    with pytest.raises(ActorError):
        await trio.to_thread.run_sync(new_reply)


@pytest.mark.parametrize("when", ["entering", "leaving"])
async def test_what_a_block_of_its_own_thread_raises_is_raised_by_who_enters_or_leaves_it(when: str) -> None:
    @contextlib.asynccontextmanager
    async def block() -> AsyncIterator[None]:
        if when == "entering":
            raise KeyError(when)
        yield
        raise KeyError(when)

    async def main() -> None:
        thread = LoopThread(block, 1.0)
        if when == "entering":
            with pytest.raises(KeyError, match=when):
                await thread.open()
        else:
            await thread.open()
            with pytest.raises(KeyError, match=when):
                await thread.close()

    await elsewhere(main)
    assert "callboard" not in {thread.name for thread in threading.enumerate()}


async def test_a_cancelled_entry_leaves_no_thread() -> None:
    entering, cancelled = threading.Event(), threading.Event()

    @contextlib.asynccontextmanager
    async def block() -> AsyncIterator[None]:
        entering.set()
        while not cancelled.is_set():
            await trio.sleep(POLL)
        yield

    async def main() -> None:
        task = asyncio.create_task(LoopThread(block, 1.0).open())
        while not entering.is_set():
            await asyncio.sleep(POLL)
        task.cancel()
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    await elsewhere(main)
    assert "callboard" not in {thread.name for thread in threading.enumerate()}


async def _forever(me: Any) -> None:
    await trio.sleep_forever()
