"""Questions travel from any actor to the root; whoever answers first is heard, and nobody else has to wait.

python examples/kernel/question.py
"""

from __future__ import annotations

import trio

from callboard.supervisors import PASS, Actor, Answer, OpenQuestions, Question, Root
from callboard.supervisors.escalation import Verdict


async def cook(me: Actor, dish: str) -> str:
    """A leaf that needs to know something."""
    question = Question(id="", actor="", text=f"salt for the {dish}?", kind="choice", options=("yes", "no"))
    answer = await me.ask_person(question)  # its id and its actor are filled in on the way
    return f"{dish} with salt: {answer.value} (says {answer.by})"


async def kitchen(me: Actor) -> list[str]:
    """Decides about the soup itself, and lets the other questions pass."""

    def policy(question: Question) -> Answer | Verdict:
        if "soup" in question.text:
            return Answer(question=question.id, value="no")
        return PASS

    me.policy = policy
    cooks = [me.spawn(cook, dish, name=dish) for dish in ("soup", "fish", "cake")]
    return [await each.result() for each in cooks]


class Guest:
    """A front end. A real one shows a dialogue and answers whenever the person does."""

    def __init__(self, name: str, desk: OpenQuestions) -> None:
        self.name = name
        self._desk = desk

    def asked(self, question: Question) -> None:
        print(f"{self.name} is asked: {question.text}")
        if self.name == "guest 2":
            self._desk.answer(question.id, "yes", by=self.name)

    def closed(self, question_id: str, by: str) -> None:
        print(f"{self.name} hears that {question_id} is answered by {by}")


async def main() -> None:
    async with Root(signals=True) as root:
        desk = root.questions
        with desk.attach(Guest("guest 1", desk)), desk.attach(Guest("guest 2", desk)):
            for line in await root.spawn(kitchen).result():
                print(line)
        late = Question(id="", actor="", text="anybody there?", default="no")
        answer = await root.spawn(lambda me: me.ask_person(late)).result()
        print("nobody is there, so the default counts:", answer.value)


if __name__ == "__main__":
    trio.run(main)
