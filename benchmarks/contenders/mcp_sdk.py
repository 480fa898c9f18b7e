"""The official SDK's client on asyncio, as its documentation has it: one `Client` per server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from _mcp import CLOCKS, SERVER, TEXT, Clock, above_raw, wall
from _serve import absent, serve

try:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters
except ImportError as error:
    absent(error)

Case = Callable[[Client, int, Clock], Awaitable[float]]
command, *args = SERVER


def connect(mode: str) -> Client:
    return Client(StdioServerParameters(command=command, args=args), mode=mode)


async def echo(client: Client) -> None:
    result = await client.call_tool("echo", {"text": TEXT})
    content: Any = result.content[0]
    assert content.text == TEXT


async def in_a_row(client: Client, n: int, now: Clock) -> float:
    began = now()
    for _ in range(n):
        await echo(client)
    return (now() - began) / n


async def together(client: Client, n: int, now: Clock) -> float:
    began = now()
    await asyncio.gather(*(echo(client) for _ in range(n)))
    return (now() - began) / n


def warm(case: Case, mode: str = "auto") -> Callable[[int, Clock], float]:
    async def main(n: int, now: Clock) -> float:
        async with connect(mode) as client:
            await echo(client)
            return await case(client, n, now)

    return lambda n, now: asyncio.run(main(n, now))


def start(n: int) -> float:
    async def main() -> float:
        up = 0
        all_up = asyncio.Event()

        async def one() -> None:
            nonlocal up
            async with connect("auto") as client:
                await echo(client)
                up += 1
                if up == n:
                    all_up.set()
                await all_up.wait()

        began = wall()
        tasks = [asyncio.create_task(one()) for _ in range(n)]
        await all_up.wait()
        spent = wall() - began
        await asyncio.gather(*tasks)
        return spent * 1e3

    return asyncio.run(main())


CALL, LEGACY, TOGETHER = warm(in_a_row), warm(in_a_row, "legacy"), warm(together)

if __name__ == "__main__":
    serve(
        {
            "call": lambda n: CALL(n, CLOCKS["cpu"]) * 1e6,
            "call_wall": lambda n: CALL(n, CLOCKS["wall"]) * 1e6,
            "overhead": above_raw(CALL, "cpu"),
            "overhead_wall": above_raw(CALL, "wall"),
            "overhead_legacy": above_raw(LEGACY, "cpu"),
            "at_once": lambda n: TOGETHER(n, CLOCKS["cpu"]) * 1e6,
            "start": start,
        }
    )
