"""Many runs at once in one process, under one root.

    python examples/many_runs.py [count]

Every run counts the words of its own text with two small scripts; no model is needed. At most eight run at a time,
since each starts processes. Ctrl-C ends all of them.
"""

import sys
from pathlib import Path

import trio

import callboard

AGENT = Path(__file__).parent / "agents" / "script"


async def main(count: int) -> None:
    """Runs the agent on `count` texts and prints what came of each."""
    at_once = trio.CapacityLimiter(8)

    async def one(number: int) -> None:
        async with at_once:
            outcome = await callboard.run(AGENT, "word " * number)
        print(f"{number:>3} {outcome.status} {outcome.output}")

    async with callboard.Root(), trio.open_nursery() as nursery:
        for number in range(1, count + 1):
            nursery.start_soon(one, number)


trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 20)
