"""Tools: plain and async functions, a dataclass as a parameter, and a database that they share."""

import asyncio
import sqlite3
from dataclasses import dataclass

import callboard


@dataclass
class Shop:
    database: sqlite3.Connection


@dataclass
class Address:
    street: str
    city: str


def find_order(ctx: callboard.Context[Shop], number: int) -> str:
    """Return the state of an order."""
    row = ctx.deps.database.execute("SELECT state FROM orders WHERE number = ?", [number]).fetchone()
    return str(row[0]) if row else "no such order"


async def weather(city: str) -> str:
    """Return the weather in a city."""
    await asyncio.sleep(0.01)
    return f"It rains in {city}."


def redirect(ctx: callboard.Context[Shop], number: int, to: Address) -> str:
    """Send an order to another address."""
    with ctx.deps.database as db:
        db.execute("UPDATE orders SET address = ? WHERE number = ?", [f"{to.street}, {to.city}", number])
    return "done"


clerk = callboard.Agent(name="clerk", instructions="You look after orders.", tools=[find_order, weather, redirect])


async def main() -> None:
    database = sqlite3.connect("shop.db", check_same_thread=False)
    async with callboard.Root() as root:
        prompt = "If order 7 has not left and it rains in Oslo, send it to 1 Quay, Bergen."
        outcome = await root.run(clerk, prompt, deps=Shop(database))
        print(outcome.unwrap())


if __name__ == "__main__":
    asyncio.run(main())
