"""Tools: async and plain functions, pydantic-like types, dependencies of the program."""

import asyncio
from dataclasses import dataclass

import callboard


@dataclass
class Shop:
    orders: dict[int, str]


@dataclass
class Item:
    name: str
    count: int = 1


# region: peers 6
async def status(ctx: callboard.Context[Shop], number: int) -> str:
    """Return the status of an order."""
    return ctx.deps.orders[number]


def total(items: list[Item]) -> int:
    """Count the items."""
    return sum(item.count for item in items)


clerk = callboard.Agent(name="clerk", instructions="Answer questions about orders.", tools=[status, total])
# endregion


async def main() -> None:
    async with callboard.Root() as root:
        outcome = await root.run(clerk, "Where is order 7?", deps=Shop({7: "shipped"}))
        print(outcome.unwrap())


if __name__ == "__main__":
    asyncio.run(main())
