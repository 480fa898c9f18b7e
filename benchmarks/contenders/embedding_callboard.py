"""Callboard in an asyncio program: `root.run` and `root.stream`, with an asyncio function as the tool."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from _clerk import INSTRUCTIONS, lookup, question
from _serve import clock, serve

import callboard

CONFIG = os.environ["BENCH_CONFIG"]
EVERY = 0.002

CLERK = callboard.Agent(name="clerk", instructions=INSTRUCTIONS, tools=[lookup])


async def agents(root: callboard.Root, n: int) -> None:
    async def one(number: int) -> None:
        outcome = await root.run(CLERK, question(number))
        assert outcome.status == "done", outcome.error
        assert (outcome.turns, outcome.tool_calls) == (2, 1)

    await asyncio.gather(*map(one, range(n)))


async def at_once(root: callboard.Root, n: int) -> float:
    await agents(root, 20)
    began = clock()
    await agents(root, n)
    return (clock() - began) / n * 1e3


async def lag(root: callboard.Root, n: int) -> float:
    """Milliseconds that the loop is late, 99th percentile, while `n` runs are streamed.

    Of a delay only the part counts in which this process used a CPU: the rest is the time of other processes.
    """
    loop = asyncio.get_running_loop()
    late: list[float] = []

    async def watch() -> None:
        while True:
            due, used = loop.time() + EVERY, clock()
            await asyncio.sleep(EVERY)
            late.append(min(loop.time() - due, clock() - used))

    async def one(number: int) -> None:
        async with root.stream(CLERK, question(number)) as run:
            assert [text async for text in run.text()]
            assert (await run.outcome()).status == "done"

    await agents(root, 20)
    watching = asyncio.create_task(watch())
    for _ in range(5):
        await asyncio.gather(*map(one, range(n)))
    watching.cancel()
    return sorted(late)[int(len(late) * 0.99)] * 1e3


def rooted(case: Callable[[callboard.Root, int], Awaitable[float]]) -> Callable[[int], float]:
    async def main(n: int) -> float:
        async with callboard.Root(config_dir=CONFIG) as root:
            return await case(root, n)

    return lambda n: asyncio.run(main(n))


if __name__ == "__main__":
    serve({"at_once": rooted(at_once), "lag": rooted(lag)})
