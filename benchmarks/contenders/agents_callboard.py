"""Callboard as a program would use it: `callboard.run` under one root, the agent loop, the real gateway.

Everything is in: the run, its actors and events, the tool's schema and the check of its arguments, permissions, the
gateway, HTTP. For the chain, and for the agent whose tool is a process, also finding, reading and checking the files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio
from _clerk import INSTRUCTIONS, lookup, question
from _serve import Idle, clock, in_a_fresh_process, resident, serve

import callboard
from callboard.actors.work.models.limiter import Gates, MustWait

FAST, SLOW = os.environ["BENCH_CONFIG"], os.environ["BENCH_CONFIG_SLOW"]


CLERK = callboard.Agent(name="clerk", instructions=INSTRUCTIONS, can_ask_user=False)


LOOKUP = callboard.function_tool(lookup, effect="read")


@contextmanager
def own_state() -> Iterator[None]:
    """What is kept goes to a directory beside us, on a real disk, and is removed."""
    before, directory = os.environ.get("XDG_STATE_HOME"), tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".state-")
    os.environ["XDG_STATE_HOME"] = directory
    try:
        yield
    finally:
        del os.environ["XDG_STATE_HOME"]
        if before is not None:
            os.environ["XDG_STATE_HOME"] = before
        shutil.rmtree(directory)


async def agents(n: int, *, durable: bool = False) -> None:
    async def one(number: int) -> None:
        outcome = await callboard.run(CLERK, question(number), tools=[LOOKUP], durable=durable)
        assert outcome.status == "done", outcome.error
        assert outcome.output
        assert (outcome.turns, outcome.tool_calls) == (2, 1)

    async with trio.open_nursery() as nursery:
        for number in range(n):
            nursery.start_soon(one, number)


async def agents_with_processes(n: int) -> None:
    async def one(number: int) -> None:
        outcome = await callboard.run("clerk", question(number))
        assert outcome.status == "done", outcome.error
        assert (outcome.turns, outcome.tool_calls) == (2, 1)

    async with trio.open_nursery() as nursery:
        for number in range(n):
            nursery.start_soon(one, number)


def rooted(case: Callable[[int], Awaitable[float]], config: str = FAST) -> Callable[[int], float]:
    async def main(n: int) -> float:
        with own_state():
            async with callboard.Root(config_dir=config):
                return await case(n)

    return lambda n: trio.run(main, n)


async def at_once(n: int) -> float:
    await agents(20)
    began = clock()
    await agents(n)
    return (clock() - began) / n * 1e3


async def durable(n: int) -> float:
    await agents(20, durable=True)
    began = clock()
    await agents(n, durable=True)
    return (clock() - began) / n * 1e3


async def few(n: int) -> float:
    await agents(n)
    began = clock()
    for _ in range(10):
        await agents(n)
    return (clock() - began) / n / 10 * 1e3


async def limiter(n: int) -> float:
    """Where nothing is limited: what the requests and the limiter spend on each other, 100 requests at a time."""
    async with callboard.Root(config_dir=FAST) as root:
        target = root.gateway.catalog.target("fake:fake")
        gate = await Gates(root.kernel).of(target.id, target.rules)
        await gate.admit(0, "run", no_tokens, no_wait)
        gate.done(0, 10)

        async def some(first: int) -> None:
            for ticket in range(first, first + n // 100):
                await gate.admit(ticket, "run", no_tokens, no_wait)
                await trio.lowlevel.checkpoint()
                gate.done(ticket, 10)

        began = clock()
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(some, 1 + number * n)
        return (clock() - began) / n * 1e6


def no_tokens() -> int:
    return 0


def no_wait(_: MustWait) -> None:
    raise AssertionError("nothing is limited")


async def processes(n: int) -> float:
    await agents_with_processes(5)
    began = time.perf_counter()
    await agents_with_processes(n)
    return (time.perf_counter() - began) / n * 1e3


async def chain(_n: int, *, durable: bool = False) -> float:
    for _ in range(2):
        began = time.perf_counter()
        outcome = await callboard.run("chain", "it", durable=durable)
        assert outcome.output, outcome.error
    return time.perf_counter() - began


async def parked(n: int) -> float:
    """KB of this process when all of them wait."""
    idle = Idle()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agents, n)
        await trio.sleep(0.2)
        while not idle():
            await trio.sleep(0.2)
        size = resident()
        nursery.cancel_scope.cancel()
    return size


async def waiting(n: int) -> float:
    """KB per agent whose model does not answer."""
    await parked(20)
    before = resident()
    return (await parked(n) - before) / n


if __name__ == "__main__":
    serve(
        {
            "at_once": rooted(at_once),
            "twice_as_many": rooted(at_once),
            "durable": rooted(durable),
            "durable_chain": rooted(partial(chain, durable=True)),
            "few": rooted(few),
            "processes": rooted(processes),
            "limiter": lambda n: trio.run(limiter, n),
            "chain": rooted(chain),
            "memory": in_a_fresh_process("waiting"),
            "waiting": rooted(waiting, SLOW),
        }
    )
