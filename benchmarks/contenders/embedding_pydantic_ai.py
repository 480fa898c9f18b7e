"""pydantic-ai with the openai SDK, one client for all runs."""

from __future__ import annotations

import asyncio
import os

from _clerk import INSTRUCTIONS, lookup, question
from _serve import absent, clock, serve

try:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
except ImportError as error:
    absent(error)

URL = os.environ["BENCH_URL"] + "/v1"


async def at_once(n: int) -> float:
    async with AsyncOpenAI(api_key="x", base_url=URL, max_retries=0, timeout=3600) as client:
        model = OpenAIChatModel("fake", provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, instructions=INSTRUCTIONS, tools=[lookup])

        async def one(number: int) -> None:
            result = await agent.run(question(number))
            assert result.output
            assert len(result.all_messages()) == 4

        await asyncio.gather(*map(one, range(20)))
        began = clock()
        await asyncio.gather(*map(one, range(n)))
        return (clock() - began) / n * 1e3


if __name__ == "__main__":
    serve({"at_once": lambda n: asyncio.run(at_once(n))})
