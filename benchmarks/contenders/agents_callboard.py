"""Callboard as a program would use it: `callboard.run` under one root, graphs of llm nodes, the real gateway.

Everything is in: finding and reading the files, validation, actors, events, the gateway, HTTP.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

import trio
from _serve import Idle, clock, in_a_fresh_process, resident, serve

import callboard

FAST, SLOW = os.environ["BENCH_CONFIG"], os.environ["BENCH_CONFIG_SLOW"]


async def agents(n: int, agent: str) -> None:
    async def one(number: int) -> None:
        outcome = await callboard.run(agent, f"agent {number}")
        assert outcome.status == "done", outcome.error
        assert outcome.output, outcome.state

    async with trio.open_nursery() as nursery:
        for number in range(n):
            nursery.start_soon(one, number)


def rooted(case: Callable[[int], Awaitable[float]], config: str = FAST) -> Callable[[int], float]:
    async def main(n: int) -> float:
        async with callboard.Root(config_dir=config):
            return await case(n)

    return lambda n: trio.run(main, n)


async def at_once(n: int) -> float:
    await agents(20, "two")
    began = clock()
    await agents(n, "two")
    return (clock() - began) / n * 1e3


async def few(n: int) -> float:
    await agents(n, "two")
    began = clock()
    for _ in range(10):
        await agents(n, "two")
    return (clock() - began) / n / 10 * 1e3


async def chain(_n: int) -> float:
    await agents(1, "chain")
    began = time.perf_counter()
    await agents(1, "chain")
    return time.perf_counter() - began


async def parked(n: int) -> float:
    """KB of this process when all of them wait."""
    idle = Idle()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agents, n, "two")
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
            "few": rooted(few),
            "chain": rooted(chain),
            "memory": in_a_fresh_process("waiting"),
            "waiting": rooted(waiting, SLOW),
        }
    )
