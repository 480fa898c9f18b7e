"""Bare trio: the same on memory channels and nurseries, and the floor of `trio.lowlevel` where a budget names it."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import outcome
import trio
from _serve import clock, micro, serve, tracing


def run(case: Callable[[int], Awaitable[float]]) -> Callable[[int], float]:
    """The case under `trio.run`."""
    return functools.wraps(case)(functools.partial(trio.run, case))


async def idle(inbox: trio.MemoryReceiveChannel[Any]) -> None:
    async for _ in inbox:
        pass


async def settle() -> None:
    for _ in range(3):
        await trio.lowlevel.checkpoint()


def start_idle(nursery: trio.Nursery, n: int) -> list[trio.MemorySendChannel[Any]]:
    outboxes = []
    for number in range(n):
        outbox, inbox = trio.open_memory_channel[Any](1024)
        nursery.start_soon(idle, inbox, name=f"a{number}")
        outboxes.append(outbox)
    return outboxes


async def spawn(n: int) -> float:
    async with trio.open_nursery() as nursery:
        began = clock()
        outboxes = start_idle(nursery, n)
        await settle()
        spent = micro(began, n)
        nursery.cancel_scope.cancel()
    del outboxes
    return spent


async def stop(n: int) -> float:
    async with trio.open_nursery() as nursery:
        outboxes = start_idle(nursery, n)
        await settle()
        began = clock()
        nursery.cancel_scope.cancel()
    del outboxes
    return micro(began, n)


def spawn_bytes(n: int) -> float:
    with tracing() as heap:

        async def main() -> float:
            async with trio.open_nursery() as nursery:
                before = heap()
                outboxes = start_idle(nursery, n)
                await settle()
                size = (heap() - before) / n
                nursery.cancel_scope.cancel()
            del outboxes
            return size

        return trio.run(main)


async def tell(n: int) -> float:
    outbox, inbox = trio.open_memory_channel[int](float("inf"))

    async def consume() -> None:
        for _ in range(n):
            await inbox.receive()

    began = clock()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        for number in range(n):
            await outbox.send(number)
    return micro(began, n)


async def tell_bounded(n: int) -> float:
    per = n // 100
    outbox, inbox = trio.open_memory_channel[int](256)
    seen: list[int] = []

    async def consume() -> None:
        seen.extend([await inbox.receive() for _ in range(per * 100)])

    async def produce(base: int) -> None:
        for number in range(base, base + per):
            await outbox.send(number)

    began = clock()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        for producer in range(100):
            nursery.start_soon(produce, producer * per)
    spent = micro(began, per * 100)
    if sorted(seen) != list(range(per * 100)):
        raise AssertionError("messages were lost")
    return spent


async def ask(n: int) -> float:
    """Two memory channels without a buffer."""
    there, inbox = trio.open_memory_channel[int](0)
    back, answers = trio.open_memory_channel[int](0)

    async def echo() -> None:
        async for message in inbox:
            await back.send(message)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(echo)
        began = clock()
        for number in range(n):
            await there.send(number)
            await answers.receive()
        spent = micro(began, n)
        nursery.cancel_scope.cancel()
    return spent


async def ask_timeout(n: int) -> float:
    """The same within `fail_after`."""
    there, inbox = trio.open_memory_channel[int](0)
    back, answers = trio.open_memory_channel[int](0)

    async def echo() -> None:
        async for message in inbox:
            await back.send(message)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(echo)
        began = clock()
        for number in range(n):
            with trio.fail_after(30.0):
                await there.send(number)
                await answers.receive()
        spent = micro(began, n)
        nursery.cancel_scope.cancel()
    return spent


async def ask_lowlevel(n: int) -> float:
    return await _ask_lowlevel(n, limited=False)


async def ask_lowlevel_timeout(n: int) -> float:
    return await _ask_lowlevel(n, limited=True)


async def _ask_lowlevel(n: int, *, limited: bool) -> float:
    """The least an ask can be: a deque, two parked tasks, and `fail_after` around the waiting."""
    mail: deque[tuple[int, trio.lowlevel.Task]] = deque()
    reader: trio.lowlevel.Task | None = None

    def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        return trio.lowlevel.Abort.SUCCEEDED

    async def echo() -> None:
        nonlocal reader
        while True:
            while mail:
                message, task = mail.popleft()
                trio.lowlevel.reschedule(task, outcome.Value(message))
            reader = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(abort)

    async def once(message: int) -> Any:
        nonlocal reader
        mail.append((message, trio.lowlevel.current_task()))
        if reader is not None:
            task, reader = reader, None
            trio.lowlevel.reschedule(task)
        return await trio.lowlevel.wait_task_rescheduled(abort)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(echo)
        began = clock()
        for number in range(n):
            if limited:
                with trio.fail_after(30.0):
                    await once(number)
            else:
                await once(number)
        spent = micro(began, n)
        nursery.cancel_scope.cancel()
    return spent


async def cancel_tree(n: int) -> float:
    return await _cancel_tree(n, awaits=False)


async def cancel_cleanup(n: int) -> float:
    return await _cancel_tree(n, awaits=True)


async def _cancel_tree(n: int, *, awaits: bool) -> float:
    """Nurseries in nurseries; nobody's order is promised."""
    width = round(n**0.5) - 1
    cleaned = 0

    async def node(fan: tuple[int, ...]) -> None:
        nonlocal cleaned
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(fan[0] if fan else 0):
                    nursery.start_soon(node, fan[1:])
                await trio.sleep_forever()
        finally:
            cleaned += 1
            if awaits:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 60):
                    await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(node, (width, width))
        await settle()
        await settle()
        began = clock()
        nursery.cancel_scope.cancel()
    total = 1 + width + width * width
    if cleaned != total:
        raise AssertionError(f"{cleaned} clean-ups of {total}")
    return micro(began, total)


async def control(n: int) -> float:
    """A channel has one lane: what comes last is handled last."""
    outbox, inbox = trio.open_memory_channel[Any](float("inf"))
    for number in range(n):
        outbox.send_nowait(number)
    began = clock()
    outbox.send_nowait(None)
    async for message in inbox:
        if message is None:
            break
    return micro(began, 1)


async def lease(n: int) -> float:
    """A semaphore's round trip: the least that a shared thing costs."""
    semaphore = trio.Semaphore(1_000)
    began = clock()
    for _ in range(n):
        async with semaphore:
            pass
    return micro(began, n)


if __name__ == "__main__":
    cases = [spawn, stop, tell, tell_bounded, ask, ask_timeout, ask_lowlevel, ask_lowlevel_timeout]
    cases += [cancel_tree, cancel_cleanup, control, lease]
    serve({"spawn_bytes": spawn_bytes, **{case.__name__: run(case) for case in cases}})
