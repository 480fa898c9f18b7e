"""The threads that plain functions are called in: places of hung calls, and shares of runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from support.waiting import PATIENCE

from callboard.actors.work.call_clock import Clock
from callboard.actors.work.tools.functions import MOST_THREADS, THREADS_PER_RUN, ToolThreads


@contextmanager
def hanging() -> Iterator[threading.Event]:
    """An event that functions wait for, set at the end of the block: threads of a test end with it."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


async def hang(threads: ToolThreads, run: str, event: threading.Event, began: trio.MemorySendChannel[str]) -> None:
    token = trio.lowlevel.current_trio_token()

    def wait() -> None:
        token.run_sync_soon(began.send_nowait, run)
        event.wait(PATIENCE)

    await threads.run(run, wait)


async def test_runs_whose_functions_hang_keep_no_other_run_from_its_call() -> None:
    threads = ToolThreads()
    send, began = trio.open_memory_channel[str](1_000)
    with hanging() as event, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for number in range(3 * MOST_THREADS):
                nursery.start_soon(hang, threads, f"run-{number % 3}", event, send)
            for _ in range(MOST_THREADS):
                await began.receive()
            assert await threads.run("run-other", lambda: "done") == "done"
            nursery.cancel_scope.cancel()


async def test_a_run_has_its_share_and_no_more() -> None:
    threads = ToolThreads()
    send, began = trio.open_memory_channel[str](1_000)
    with hanging() as event, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for _ in range(THREADS_PER_RUN + 5):
                nursery.start_soon(hang, threads, "run-a", event, send)
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(THREADS_PER_RUN):
                await began.receive()
            with pytest.raises(trio.WouldBlock):
                began.receive_nowait()
            event.set()


async def test_a_cancelled_call_gives_its_place_to_the_next_while_its_thread_hangs() -> None:
    threads = ToolThreads()
    send, began = trio.open_memory_channel[str](1_000)
    with hanging() as event, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for _ in range(THREADS_PER_RUN):
                nursery.start_soon(hang, threads, "run-a", event, send)
            for _ in range(THREADS_PER_RUN):
                await began.receive()
            nursery.cancel_scope.cancel()
        assert await threads.run("run-a", lambda: 1) == 1


async def test_a_call_that_is_cancelled_while_it_waits_takes_no_place() -> None:
    threads = ToolThreads()
    send, began = trio.open_memory_channel[str](1_000)
    with hanging() as event, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            for _ in range(THREADS_PER_RUN):
                nursery.start_soon(hang, threads, "run-a", event, send)
            for _ in range(THREADS_PER_RUN):
                await began.receive()
            for _ in range(3):
                with trio.move_on_after(0):
                    await threads.run("run-a", lambda: None)
            event.set()
        assert [await threads.run("run-a", lambda: 1) for _ in range(THREADS_PER_RUN + 1)] == [1] * (
            THREADS_PER_RUN + 1
        )


async def test_the_clock_of_a_call_stands_still_until_it_has_a_thread(mock_clock: trio.testing.MockClock) -> None:
    threads = ToolThreads()
    clock = Clock(1.0)
    threads._busy["run-a"], threads._total = THREADS_PER_RUN, THREADS_PER_RUN  # its places are taken
    results: list[int] = []

    async def call() -> None:
        with clock.counting(), clock.scope:
            results.append(await threads.run("run-a", lambda: 1))

    # The time passes by hand: a clock that jumps whenever all tasks wait does so while the thread runs, too.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(50)
        await trio.testing.wait_all_tasks_blocked()
        assert not clock.scope.cancel_called
        assert results == []
        threads._leave("run-a")
    assert results == [1]
    assert not clock.scope.cancelled_caught
