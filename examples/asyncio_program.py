"""Agents in an asyncio program: one root for all of them, with an asyncio function as their tool.

    python examples/asyncio_program.py [city ...]

Each run has ten seconds. One that takes longer is cancelled, and nothing of it is left when `wait_for` raises.
"""

import asyncio
import sys

import callboard

AGENT = callboard.Agent(
    name="weather",
    instructions="Say in one sentence what to wear in the city. Look the weather up first.",
    can_ask_user=False,
)
FORECASTS = {"Oslo": "-3 degrees, snow", "Lisbon": "19 degrees, sun"}


async def forecast(city: str) -> str:
    """Return today's weather in a city."""
    await asyncio.sleep(0.1)  # stands for a request; it runs in the loop of this program
    return FORECASTS.get(city, "10 degrees, rain")


async def main(cities: list[str]) -> None:
    """Runs the agent for all cities at once, then once more to print its answer as it arrives."""
    async with callboard.Root() as root:

        async def advise(city: str) -> None:
            try:
                outcome = await asyncio.wait_for(root.run(AGENT, city, tools=[forecast]), timeout=10)
                print(f"{city}: {outcome.output if outcome.status == 'done' else outcome.error}")
            except TimeoutError:
                print(f"{city}: no advice within ten seconds")

        await asyncio.gather(*map(advise, cities))
        async with root.stream(AGENT, "all of them") as run:  # leaving the block early would cancel the run
            async for text in run.text():
                print(text, end="", flush=True)
            print(f"\n{(await run.outcome()).turns} turns")


asyncio.run(main(sys.argv[1:] or list(FORECASTS)))
