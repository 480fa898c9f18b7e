"""A front end of one's own: a program answers what agents ask.

    python examples/answer_questions.py [prompt]

Two runs of one agent work side by side; both ask before they send. Everything that is not too long is approved.
"""

import sys
from pathlib import Path

import trio

import callboard

AGENT = Path(__file__).parent / "agents" / "approval"


class Clerk:
    """Reads each question and answers it after a moment's thought."""

    name = "clerk"

    def __init__(self, root: callboard.Root, nursery: trio.Nursery) -> None:
        self._root = root
        self._nursery = nursery

    def on_question(self, question: callboard.Question) -> None:
        """A question is open. This must return at once, so the thinking is a task of its own."""
        self._nursery.start_soon(self._think, question)

    def on_question_closed(self, question_id: str, by: str) -> None:
        """The question is answered, or nobody needs the answer any more."""
        print(f"{question_id} closed: {by}")

    async def _think(self, question: callboard.Question) -> None:
        await trio.sleep(0.1)
        verdict = "yes" if len(question.text) < 400 else "no"
        self._root.inbox.answer(question.id, verdict, by=self.name)


async def main(prompt: str) -> None:
    """Runs the agent twice at once and prints both results."""

    async def one(number: int) -> None:
        outcome = await callboard.run(AGENT, prompt)
        print(f"run {number}: {outcome.output if outcome.status == 'done' else outcome.error}")

    async with callboard.Root() as root, trio.open_nursery() as nursery:
        with root.inbox.attach(Clerk(root, nursery)):
            async with trio.open_nursery() as runs:
                runs.start_soon(one, 1)
                runs.start_soon(one, 2)


trio.run(main, " ".join(sys.argv[1:]) or "a walk by the sea")
