"""Streams: text as it arrives, and calls of tools. Leaving the block early cancels the run."""

import asyncio

import callboard
from callboard.events import LlmDelta, ToolFinished


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


bot = callboard.Agent(name="bot", instructions="Use your tool.", tools=[add])


async def main() -> None:
    # region: peers 2
    async with callboard.Root() as root, root.stream(bot, "What is 1 + 2?") as run:
        async for event in run:
            # endregion
            match event.data:
                case LlmDelta(text=text):
                    print(text, end="", flush=True)
                case ToolFinished(tool=tool, result=result):
                    print(f"[{tool}: {result}]")
                case _:
                    pass
        print("\n", (await run.outcome()).status, sep="")


if __name__ == "__main__":
    asyncio.run(main())
