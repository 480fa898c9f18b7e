"""Tenants: each has its own key, directory, and limits. Neither sees anything of the other."""

import asyncio
import os
from pathlib import Path

import callboard

BASE = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
clerk = callboard.Agent(name="clerk", instructions="You keep notes.", global_tools=("fs_write",))


def tenant(name: str, max_cost: float) -> callboard.Config:
    return callboard.Config(
        name=name,
        clients=[{"type": "openai", "api_key": os.environ[f"{name.upper()}_KEY"], "api_base": BASE}],
        model="openai:gpt-5-mini",
        limits=callboard.Limits(max_cost=max_cost),
        directory=Path("tenants", name).resolve(),
    )


async def main() -> None:
    async with callboard.Root() as root:
        runs = [
            root.run(clerk, "Note that I was here.", config=tenant(name, cost), allow=["fs_write"])
            for name, cost in {"acme": 1.0, "bolt": 0.1}.items()
        ]
        for outcome in await asyncio.gather(*runs):
            print(outcome.status, outcome.final, outcome.error)


if __name__ == "__main__":
    asyncio.run(main())
