"""LangGraph, async, without a checkpointer and without a stream: the least it can do."""

from __future__ import annotations

import asyncio
import operator
import os
from typing import Annotated, Any, TypedDict

from _serve import absent, clock, serve

os.environ.setdefault("LANGSMITH_TRACING", "false")

try:
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send
except ImportError as error:
    absent(error)


class Counter(TypedDict):
    n: int


class Fan(TypedDict):
    items: list[int]
    seen: Annotated[list[Any], operator.add]


async def count_up(state: Counter) -> Counter:
    return {"n": state["n"] + 1}


def play(graph: Any, state: Any, steps: int, times: int) -> tuple[float, Any]:
    """CPU seconds of one run: the mean of so many, after as many to warm up."""
    config = {"recursion_limit": steps + 10}

    async def main() -> tuple[float, Any]:
        for number in range(2 * times):
            if number == times:
                began = clock()
            result = await graph.ainvoke(state, config)
        return (clock() - began) / times, result

    return asyncio.run(main())


def chain(n: int) -> float:
    builder = StateGraph(Counter)
    names = [f"n{i}" for i in range(n)]
    for name in names:
        builder.add_node(name, count_up)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    seconds, result = play(builder.compile(), {"n": 0}, n, times=10)
    assert result["n"] == n
    return seconds / n * 1e6


def fan_map(n: int) -> float:
    """`n` `Send`s to one node."""

    async def each(state: dict[str, Any]) -> dict[str, Any]:
        return {"seen": [state["item"]]}

    def spread(state: Fan) -> list[Send]:
        return [Send("each", {"item": item}) for item in state["items"]]

    builder = StateGraph(Fan)
    builder.add_node("each", each)
    builder.add_conditional_edges(START, spread, ["each"])
    builder.add_edge("each", END)
    seconds, result = play(builder.compile(), {"items": list(range(n)), "seen": []}, n, times=2)
    assert sorted(result["seen"]) == list(range(n))
    return seconds * 1e3


def fan_nodes(n: int) -> float:
    """`n` nodes between a start and a join."""
    builder = StateGraph(Fan)

    async def nothing(_state: Fan) -> dict[str, Any]:
        return {"items": []}

    def own(name: str) -> Any:
        async def work(_state: Fan) -> dict[str, Any]:
            return {"seen": [name]}

        return work

    names = [f"n{i:04}" for i in range(n)]
    builder.add_node("start", nothing)
    builder.add_node("join", nothing)
    builder.add_edge(START, "start")
    for name in names:
        builder.add_node(name, own(name))
        builder.add_edge("start", name)
    builder.add_edge(names, "join")
    builder.add_edge("join", END)
    seconds, result = play(builder.compile(), {"items": [], "seen": []}, n, times=2)
    assert sorted(result["seen"]) == names
    return seconds * 1e3


if __name__ == "__main__":
    serve({"chain": chain, "fan_map": fan_map, "fan_nodes": fan_nodes})
