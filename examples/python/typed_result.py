"""Typed results: the answer is a dataclass, checked, and asked for again if it does not fit."""

import asyncio
from dataclasses import dataclass

import callboard


@dataclass
class Verdict:
    good: bool
    reasons: list[str]


# region: peers 1
judge = callboard.Agent(name="judge", instructions="Judge the text.", result=Verdict)
# endregion


async def main() -> None:
    async with callboard.Root() as root:
        verdict = (await root.run(judge, "A short text.")).unwrap()
        print("good" if verdict.good else "bad", verdict.reasons)


if __name__ == "__main__":
    asyncio.run(main())
