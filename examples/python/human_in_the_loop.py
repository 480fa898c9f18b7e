"""Human in the loop: a refund needs approval. The run is durable: killed at the question, it asks again when restarted.

python human_in_the_loop.py run-refund7
"""

import asyncio
import sys
import threading

import callboard


def refund(order: int) -> str:
    """Pay an order back."""
    return f"Order {order} is refunded."


clerk = callboard.Agent(name="clerk", instructions="Refund.", tools=[refund], permissions={"refund": "ask"})


class Terminal:
    name = "terminal"

    def __init__(self, root: callboard.Root) -> None:
        self.root = root

    def on_question(self, question: callboard.Question) -> None:
        threading.Thread(target=self.ask, args=[question], daemon=True).start()

    def on_question_closed(self, question_id: str, by: str) -> None: ...

    def ask(self, question: callboard.Question) -> None:
        self.root.inbox.answer(question.id, input(f"{question.text} {question.options} "), by=self.name)


async def main(run: str) -> None:
    async with callboard.Root() as root:
        with root.inbox.attach(Terminal(root)):
            try:
                outcome = await root.resume(run, agent=clerk)
            except callboard.errors.NotFound:
                outcome = await root.run(clerk, "Refund order 7.", durable=True, id=run)
        print(outcome.unwrap())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
