"""The floor of the map: tasks of bare trio that sleep, so many at once, told of by nobody."""

from __future__ import annotations

import time

import trio
from _serve import serve


def map_units(n: int) -> float:
    """ms of wall time for `n` sleeps of 20 ms, 100 at once."""

    async def main() -> float:
        limit = trio.CapacityLimiter(100)

        async def unit() -> None:
            async with limit:
                await trio.sleep(0.02)

        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(n):
                nursery.start_soon(unit)
        return time.perf_counter() - began

    return trio.run(main) * 1e3


if __name__ == "__main__":
    serve({"map_units": map_units})
