"""A thousand runs of each kind that ends badly leave threads, descriptors, memory, and tasks as they were."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.waiting import PATIENCE, POLL

import callboard

BOT = callboard.Agent(name="bot", instructions="Be brief.", can_ask_user=False)
TIMES = 1_000
AT_ONCE = 50
WARM_UP = 100
THREADS = 2 * AT_ONCE
"""Threads that may come: trio keeps a thread for 10 s after its call, so their number is that of the calls at once.

Those are a function of each run, and at most 40 (the default limit of trio) of the rest of the program.
"""
KEPT_BY_NOBODY = ("callboard.supervisors.", "callboard.actors.runs.")
FEW = 200
"""Objects of ours that may come: those of connections, and of what is imported at first use."""


def broken() -> str:
    """Fail."""
    raise KeyError("nope")


async def cancelled(root: callboard.Root) -> None:
    async with root.stream(BOT, "hang") as run:
        async for event in run:
            if event.kind == "llm.request":
                run.cancel()
        assert (await run.outcome()).status == "cancelled"


async def cancelled_by_its_task(root: callboard.Root) -> None:
    task = asyncio.ensure_future(root.run(BOT, "hang"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def failing_tool(root: callboard.Root) -> None:
    assert (await root.run(BOT, "tool", tools=[broken])).status == "done"


async def abandoned_stream(root: callboard.Root) -> None:
    async with root.stream(BOT, "say") as run:
        async for _ in run.text():
            break


def answer(request: Request) -> Reply:
    if request.prompt == "hang":
        return Reply(hold=trio.Event())
    if request.prompt == "tool" and not request.results:
        return Reply(calls=[("broken", {})])
    return Reply("one two three four five")


def state() -> tuple[int, int, int]:
    return threading.active_count(), psutil.Process().num_fds(), len(asyncio.all_tasks())


def ours() -> Counter[str]:
    """Count the objects of runs and of the kernel that are alive, by class. (Deciders are kept by second_decider.)"""
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith(KEPT_BY_NOBODY))


@pytest.mark.full
@pytest.mark.parametrize("ends", [cancelled, cancelled_by_its_task, failing_tool, abandoned_stream])
async def test_a_thousand_runs_that_end_badly_leave_nothing(
    ends: Callable[[callboard.Root], Coroutine[Any, Any, None]],
    fake_model: FakeModels,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # pytest stores all log records that reach the root logger, and the traceback of a failed tool holds its run.
    monkeypatch.setattr(logging.getLogger("callboard"), "propagate", False)
    fake_model.answer_with(answer)
    config = fake_model.config_dir(tmp_path)

    async def many(root: callboard.Root, times: int) -> None:
        for _ in range(times // AT_ONCE):
            await asyncio.gather(*(ends(root) for _ in range(AT_ONCE)))

    async def main() -> None:
        async with callboard.Root(config_dir=config) as root:
            await many(root, WARM_UP)
            gc.collect()
            before, objects = state(), ours()
            await many(root, TIMES)
            gc.collect()
            threads, descriptors, tasks = state()
            assert tasks == before[2]
            assert threads <= before[0] + THREADS, "threads of calls that have ended, which wait for another"
            assert descriptors <= before[1] + AT_ONCE, "connections that are kept"
            assert await root.call(lambda: runs_of(root)) == []
            # The root's thread may still be about to leave the frames of the last runs.
            deadline = time.monotonic() + PATIENCE
            while sum((more := ours() - objects).values()) >= FEW:
                assert time.monotonic() < deadline, more.most_common(5)
                await asyncio.sleep(POLL)

    await trio.to_thread.run_sync(lambda: asyncio.run(main()))


async def runs_of(root: callboard.Root) -> list[str]:
    return [child.path for child in root.kernel.actor.children if "run-" in child.path]
