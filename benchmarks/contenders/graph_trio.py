"""Bare trio: a fresh task and a dictionary copy per node. The floor, not a graph engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from _serve import clock, serve

State = dict[str, Any]
Node = Callable[[State], Awaitable[State]]


async def count_up(state: State) -> State:
    return {"n": state["n"] + 1}


async def run_one(node: Node, state: State, writes: list[State]) -> None:
    writes.append(await node(state))


def chain(n: int) -> float:
    async def main() -> float:
        state: State = {"n": 0}
        began = clock()
        for _ in range(n):
            writes: list[State] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_one, count_up, state, writes)
            state = {**state, **writes[0]}
        assert state["n"] == n
        return (clock() - began) / n * 1e6

    return trio.run(main)


def fan_map(n: int) -> float:
    async def main() -> float:
        results: list[Any] = [None] * n

        async def each(index: int) -> None:
            results[index] = index

        began = clock()
        async with trio.open_nursery() as nursery:
            for index in range(n):
                nursery.start_soon(each, index)
        assert results == list(range(n))
        return (clock() - began) * 1e3

    return trio.run(main)


if __name__ == "__main__":
    serve({"chain": chain, "fan_map": fan_map, "fan_nodes": fan_map})
