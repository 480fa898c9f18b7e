"""openai-agents with the openai SDK, one client for all runs, without tracing."""

from __future__ import annotations

import asyncio
import os

from _clerk import INSTRUCTIONS, lookup, question
from _serve import absent, clock, serve

try:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI
except ImportError as error:
    absent(error)

URL = os.environ["BENCH_URL"] + "/v1"


async def at_once(n: int) -> float:
    set_tracing_disabled(True)
    async with AsyncOpenAI(api_key="x", base_url=URL, max_retries=0, timeout=3600) as client:
        model = OpenAIChatCompletionsModel("fake", openai_client=client)
        agent = Agent(name="clerk", instructions=INSTRUCTIONS, model=model, tools=[function_tool(lookup)])

        async def one(number: int) -> None:
            result = await Runner.run(agent, question(number))
            assert result.final_output
            assert len(result.raw_responses) == 2

        await asyncio.gather(*map(one, range(20)))
        began = clock()
        await asyncio.gather(*map(one, range(n)))
        return (clock() - began) / n * 1e3


if __name__ == "__main__":
    serve({"at_once": lambda n: asyncio.run(at_once(n))})
