"""asyncio: tasks with queues, futures for replies, `wait_for` and `timeout`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from _serve import clock, micro, serve, tracing


def run(case: Callable[[int], Coroutine[Any, Any, float]]) -> Callable[[int], float]:
    """The case under `asyncio.run`."""
    return functools.wraps(case)(lambda n: asyncio.run(case(n)))


async def idle(inbox: asyncio.Queue[Any]) -> None:
    while True:
        await inbox.get()


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def start_idle(n: int) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(idle(asyncio.Queue(1024)), name=f"a{number}") for number in range(n)]


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def spawn(n: int) -> float:
    began = clock()
    tasks = start_idle(n)
    await settle()
    spent = micro(began, n)
    await end(tasks)
    return spent


async def stop(n: int) -> float:
    tasks = start_idle(n)
    await settle()
    began = clock()
    await end(tasks)
    return micro(began, n)


def spawn_bytes(n: int) -> float:
    with tracing() as heap:

        async def main() -> float:
            before = heap()
            tasks = start_idle(n)
            await settle()
            size = (heap() - before) / n
            await end(tasks)
            return size

        return asyncio.run(main())


async def tell(n: int) -> float:
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def consume() -> None:
        for _ in range(n):
            await queue.get()

    began = clock()
    task = asyncio.create_task(consume())
    for number in range(n):
        await queue.put(number)
    await task
    return micro(began, n)


async def tell_bounded(n: int) -> float:
    per = n // 100
    queue: asyncio.Queue[int] = asyncio.Queue(256)
    seen: list[int] = []

    async def consume() -> None:
        seen.extend([await queue.get() for _ in range(per * 100)])

    async def produce(base: int) -> None:
        for number in range(base, base + per):
            await queue.put(number)

    began = clock()
    await asyncio.gather(consume(), *(produce(producer * per) for producer in range(100)))
    spent = micro(began, per * 100)
    if sorted(seen) != list(range(per * 100)):
        raise AssertionError("messages were lost")
    return spent


async def ask(n: int) -> float:
    return await _ask(n, limited=False)


async def ask_timeout(n: int) -> float:
    return await _ask(n, limited=True)


async def _ask(n: int, *, limited: bool) -> float:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[int, asyncio.Future[int]]] = asyncio.Queue()

    async def echo() -> None:
        while True:
            message, future = await queue.get()
            future.set_result(message)

    task = asyncio.create_task(echo())
    await settle()
    began = clock()
    for number in range(n):
        future: asyncio.Future[int] = loop.create_future()
        queue.put_nowait((number, future))
        if limited:
            async with asyncio.timeout(30.0):
                await future
        else:
            await future
    spent = micro(began, n)
    await end([task])
    return spent


async def cancel_tree(n: int) -> float:
    return await _cancel_tree(n, awaits=False)


async def cancel_cleanup(n: int) -> float:
    return await _cancel_tree(n, awaits=True)


async def _cancel_tree(n: int, *, awaits: bool) -> float:
    """Task groups in task groups."""
    width = round(n**0.5) - 1
    cleaned = 0

    async def node(fan: tuple[int, ...]) -> None:
        nonlocal cleaned
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(fan[0] if fan else 0):
                    group.create_task(node(fan[1:]))
                await asyncio.Event().wait()
        finally:
            cleaned += 1
            if awaits:
                await asyncio.sleep(0)

    task = asyncio.create_task(node((width, width)))
    await settle()
    await settle()
    began = clock()
    await end([task])
    total = 1 + width + width * width
    if cleaned != total:
        raise AssertionError(f"{cleaned} clean-ups of {total}")
    return micro(began, total)


async def control(n: int) -> float:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    for number in range(n):
        queue.put_nowait(number)
    began = clock()
    queue.put_nowait(None)
    while await queue.get() is not None:
        pass
    return micro(began, 1)


async def lease(n: int) -> float:
    semaphore = asyncio.Semaphore(1_000)
    began = clock()
    for _ in range(n):
        async with semaphore:
            pass
    return micro(began, n)


if __name__ == "__main__":
    cases = [spawn, stop, tell, tell_bounded, ask, ask_timeout, cancel_tree, cancel_cleanup, control, lease]
    serve({"spawn_bytes": spawn_bytes, **{case.__name__: run(case) for case in cases}})
