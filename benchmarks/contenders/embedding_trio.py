"""The program of embedding_callboard.py under trio."""

from __future__ import annotations

import os

import trio
from _clerk import INSTRUCTIONS, lookup, question
from _serve import clock, serve

import callboard

CONFIG = os.environ["BENCH_CONFIG"]

CLERK = callboard.Agent(name="clerk", instructions=INSTRUCTIONS, tools=[lookup])


async def agents(root: callboard.Root, n: int) -> None:
    async def one(number: int) -> None:
        outcome = await root.run(CLERK, question(number))
        assert outcome.status == "done", outcome.error
        assert (outcome.turns, outcome.tool_calls) == (2, 1)

    async with trio.open_nursery() as nursery:
        for number in range(n):
            nursery.start_soon(one, number)


async def at_once(n: int) -> float:
    async with callboard.Root(config_dir=CONFIG) as root:
        await agents(root, 20)
        began = clock()
        await agents(root, n)
        return (clock() - began) / n * 1e3


if __name__ == "__main__":
    serve({"at_once": lambda n: trio.run(at_once, n)})
