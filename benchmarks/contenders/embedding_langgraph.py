"""LangGraph's agent of langchain, with langchain-openai."""

from __future__ import annotations

import asyncio
import os

from _clerk import INSTRUCTIONS, lookup, question
from _serve import absent, clock, serve

try:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI
except ImportError as error:
    absent(error)

URL = os.environ["BENCH_URL"] + "/v1"


async def at_once(n: int) -> float:
    model = ChatOpenAI(model="fake", base_url=URL, api_key="x", max_retries=0, timeout=3600)
    agent = create_agent(model, tools=[lookup], system_prompt=INSTRUCTIONS)

    async def one(number: int) -> None:
        result = await agent.ainvoke({"messages": [("user", question(number))]})
        assert result["messages"][-1].content
        assert len(result["messages"]) == 4

    await asyncio.gather(*map(one, range(20)))
    began = clock()
    await asyncio.gather(*map(one, range(n)))
    return (clock() - began) / n * 1e3


if __name__ == "__main__":
    with asyncio.Runner() as runner:  # one loop for all rounds: langchain-openai caches an HTTP client for the process
        serve({"at_once": lambda n: runner.run(at_once(n))})
