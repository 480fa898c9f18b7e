"""A question that outlives its process: the run is durable. Another process answers, and resumes it.

python human_in_the_loop.py ask                        prints run and question, and waits; kill it
python human_in_the_loop.py answer RUN QUESTION yes
"""

import asyncio
import sys

import callboard
from callboard.events import QuestionAsked


def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


clerk = callboard.Agent(name="clerk", instructions="Ask before you pay.", tools=[pay], can_ask_user=True)


async def ask() -> None:
    # region: peers 5
    async with callboard.Root(wait_for_front_end=True) as root, root.stream(clerk, "Pay 7.", durable=True) as run:
        async for event in run:
            if isinstance(event.data, QuestionAsked):
                print(run.id, event.id, flush=True)
    # endregion


async def answer(run: str, question: str, value: str) -> None:
    # region
    async with callboard.Root() as root:
        await root.answer(question, value)
        print((await root.resume(run, agent=clerk)).unwrap())
    # endregion


if __name__ == "__main__":
    asyncio.run(ask() if sys.argv[1] == "ask" else answer(*sys.argv[2:]))
