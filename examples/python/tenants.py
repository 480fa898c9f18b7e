"""Tenants: a key, a model, and limits per run, in one process. Tenants see nothing of each other."""

import asyncio
import os

import callboard

bot = callboard.Agent(name="bot", instructions="Be brief.")


async def main(keys: dict[str, str]) -> None:
    async with callboard.Root() as root:
        for name, key in keys.items():
            # region: peers 1
            client = {"type": "openai", "api_key": key}
            config = callboard.Config(name=name, clients=[client], model="openai:gpt-5-mini")
            outcome = await root.run(bot, "Who are you?", config=config)
            # endregion
            print(name, outcome.unwrap())


if __name__ == "__main__":
    asyncio.run(main({"acme": os.environ["ACME_KEY"], "globex": os.environ["GLOBEX_KEY"]}))
