"""LangGraph with its checkpoints in SQLite on the disk: a chain of nodes that do nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import TypedDict

from _serve import absent, clock, serve

os.environ.setdefault("LANGSMITH_TRACING", "false")

try:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.graph import END, START, StateGraph
except ImportError as error:
    absent(error)


class Counter(TypedDict):
    n: int


async def count_up(state: Counter) -> Counter:
    return {"n": state["n"] + 1}


def chain_durable(n: int, times: int = 3) -> float:
    """µs per node, the mean of so many runs, after one to warm up."""
    builder = StateGraph(Counter)
    names = [f"n{i}" for i in range(n)]
    for name in names:
        builder.add_node(name, count_up)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    directory = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".journal-"))

    async def main() -> float:
        async with AsyncSqliteSaver.from_conn_string(str(directory / "checkpoints.db")) as saver:
            graph = builder.compile(checkpointer=saver)
            for number in range(1 + times):
                if number == 1:
                    began = clock()
                config = {"configurable": {"thread_id": str(number)}, "recursion_limit": n + 10}
                result = await graph.ainvoke({"n": 0}, config)
                assert result["n"] == n
            return (clock() - began) / times

    try:
        return asyncio.run(main()) / n * 1e6
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    serve({"chain_durable": chain_durable})
