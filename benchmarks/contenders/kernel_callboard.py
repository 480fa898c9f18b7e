"""Callboard's kernel: what `../kernel.py` measures, on supervised actors."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from _serve import clock, micro, serve, tracing

from callboard.protocol.messages import Message
from callboard.supervisors import Actor, Ref, Root
from callboard.supervisors.pool import Pool


class Number(Message, frozen=True):
    """What is told: as a number to the others, which take anything."""

    number: int


def numbers(n: int, first: int = 0) -> list[Number]:
    """Made before the clock starts, as numbers are: what is measured is mail, not msgspec."""
    return [Number(number) for number in range(first, first + n)]


UNBOUNDED = 1 << 60
PATIENT = 60.0
"""Seconds of grace where ten thousand end at once: graces are wall time, of which a busy machine may give us little."""


def rooted(case: Callable[[Root, int], Awaitable[float]]) -> Callable[[int], float]:
    """Run a case in a tree of its own."""

    @functools.wraps(case)
    def run(n: int) -> float:
        async def main() -> float:
            async with Root() as root:
                return await case(root, n)

        return trio.run(main)

    return run


async def idle(me: Actor) -> None:
    async for _ in me:
        pass


async def settle() -> None:
    for _ in range(3):
        await trio.lowlevel.checkpoint()


async def spawn(root: Root, n: int) -> float:
    began = clock()
    for number in range(n):
        root.spawn(idle, name=f"a{number}")
    await settle()
    return micro(began, n)


async def stop(root: Root, n: int) -> float:
    for number in range(n):
        root.spawn(idle, name=f"a{number}")
    await settle()
    began = clock()
    await root.stop()
    return micro(began, n)


def spawn_bytes(n: int) -> float:
    with tracing() as heap:

        async def case(root: Root, n: int) -> float:
            before = heap()
            for number in range(n):
                root.spawn(idle, name=f"a{number}")
            await settle()
            return (heap() - before) / n

        return rooted(case)(n)


async def count(me: Actor, n: int) -> None:
    for _ in range(n):
        await me.receive()


async def tell(root: Root, n: int) -> float:
    ref = root.spawn(count, n, bound=UNBOUNDED)
    messages = numbers(n)
    began = clock()
    for message in messages:
        await ref.tell(message)
    await ref.result()
    return micro(began, n)


async def tell_bounded(root: Root, n: int) -> float:
    per = n // 100
    seen: list[Number] = []

    async def consume(me: Actor) -> None:
        seen.extend([await me.receive() for _ in range(per * 100)])

    async def produce(_me: Actor, ref: Ref[Number], messages: list[Number]) -> None:
        for message in messages:
            await ref.tell(message)

    parts = [numbers(per, producer * per) for producer in range(100)]
    began = clock()
    ref = root.spawn(consume, bound=256)
    for producer, part in enumerate(parts):
        root.spawn(produce, ref, part, name=f"p{producer}")
    await ref.result()
    spent = micro(began, per * 100)
    if sorted(message.number for message in seen) != list(range(per * 100)):
        raise AssertionError("messages were lost")
    return spent


async def echo(me: Actor) -> None:
    async for message in me:
        me.reply(message)


async def ask(root: Root, n: int) -> float:
    return await _ask(root, n, None)


async def ask_timeout(root: Root, n: int) -> float:
    return await _ask(root, n, 30.0)


async def _ask(root: Root, n: int, timeout: float | None) -> float:
    ref = root.spawn(echo)

    async def asker(_me: Actor) -> float:
        messages = numbers(n)
        await ref.ask(messages[0])
        began = clock()
        for message in messages:
            await ref.ask(message, timeout)
        return micro(began, n)

    return await root.spawn(asker).result()


async def cancel_tree(root: Root, n: int) -> float:
    return await _cancel_tree(root, n, awaits=False)


async def cancel_cleanup(root: Root, n: int) -> float:
    return await _cancel_tree(root, n, awaits=True)


async def _cancel_tree(root: Root, n: int, *, awaits: bool) -> float:
    """Every `finally` has to run, and no parent's end may come before its children's.

    The order is looked at in a smaller tree of its own, so that keeping the minutes is not what is measured.
    """
    ended: list[str] = []
    await _cancel_one_tree(root, 20, awaits, ended)
    place = {path: number for number, path in enumerate(ended)}
    if any(place[path] > place.get(path.rpartition("/")[0], len(ended)) for path in ended):
        raise AssertionError("a parent ended before its child")
    return await _cancel_one_tree(root, round(n**0.5) - 1, awaits, None)


async def _cancel_one_tree(root: Root, width: int, awaits: bool, ended: list[str] | None) -> float:
    """CPU µs per actor of 1 + w + w·w."""
    cleaned = 0

    async def node(me: Actor, fan: tuple[int, ...]) -> None:
        nonlocal cleaned
        for number in range(fan[0] if fan else 0):
            child = me.spawn(node, fan[1:], name=f"n{number}", stop_within=PATIENT)
            if ended is not None:
                child.on_end(functools.partial(_note, ended, child.path))
        try:
            await me.receive()
        finally:
            cleaned += 1
            if awaits:
                with me.cleanup():
                    await trio.lowlevel.checkpoint()

    top = root.spawn(node, (width, width), name=f"top{width}", stop_within=PATIENT)
    if ended is not None:
        top.on_end(functools.partial(_note, ended, top.path))
    await settle()
    await settle()
    began = clock()
    top.cancel()
    await top.wait()
    total = 1 + width + width * width
    spent = micro(began, total)
    if cleaned != total or (ended is not None and len(ended) != total):
        raise AssertionError(f"{cleaned} clean-ups of {total}")
    return spent


def _note(ended: list[str], path: str, _end: Any) -> None:
    ended.append(path)


async def control(root: Root, n: int) -> float:
    """p99 of CPU µs from a signal's sending to its handling, with `n` messages queued before it."""
    times: list[float] = []
    handled = trio.Event()

    class Knock(Message, frozen=True):
        sent: float

    async def busy(me: Actor) -> None:
        nonlocal handled
        async for message in me:
            if type(message) is Knock:
                times.append(clock() - message.sent)
                handled.set()

    ref = root.spawn(busy, bound=UNBOUNDED)
    for message in numbers(n):
        ref.tell_nowait(message)
    for _ in range(min(200, n // 100)):
        handled = trio.Event()
        ref.signal(Knock(clock()))
        await handled.wait()
        for message in numbers(130):
            ref.tell_nowait(message)
    return sorted(times)[int(len(times) * 0.99)] * 1e6


async def lease(root: Root, n: int) -> float:
    @asynccontextmanager
    async def open(_me: Actor, key: str) -> AsyncIterator[str]:
        yield key

    pool = Pool(root, open)
    await pool.warm("key")
    began = clock()
    for _ in range(n):
        async with pool.lease("key"):
            pass
    return micro(began, n)


if __name__ == "__main__":
    serve(
        {
            "spawn": rooted(spawn),
            "spawn_bytes": spawn_bytes,
            "stop": rooted(stop),
            "tell": rooted(tell),
            "tell_bounded": rooted(tell_bounded),
            "ask": rooted(ask),
            "ask_timeout": rooted(ask_timeout),
            "cancel_tree": rooted(cancel_tree),
            "cancel_cleanup": rooted(cancel_cleanup),
            "control": rooted(control),
            "lease": rooted(lease),
        }
    )
