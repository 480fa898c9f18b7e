"""Runs whose processes want more than their sandbox lets them have, and a person who is asked about it."""

from __future__ import annotations

import callboard
from callboard.protocol.kernel.questions import Question
from support.fake_models import Reply
from support.repository import Repository


class Person:
    """A person who gives these answers, one after the other, and then the last one."""

    name = "person"

    def __init__(self, root: callboard.Root, *answers: str) -> None:
        self.questions: list[Question] = []
        self._root = root
        self._answers = list(answers)

    def asked(self, question: Question) -> None:
        self.questions.append(question)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self._root.questions.answer(question.id, answer, by=self.name)

    def closed(self, question_id: str, by: str) -> None:
        """Nothing is shown."""


async def told(project: Repository, *replies: Reply, person: tuple[str, ...] = (), **options: object) -> list[str]:
    """What the model is told of its calls, then what the person was asked."""
    options = {"sandbox": "workspace", "allow": ("execute_command",), **options}
    async with callboard.Root(config_dir=project.config) as root:
        someone = Person(root, *person)
        if person:
            with root.questions.attach(someone):
                outcome = await project.run(*replies, "over", root=root, **options)
        else:
            outcome = await project.run(*replies, "over", root=root, **options)
    assert outcome.status == "done", outcome.error
    said = [turn["content"] for turn in project.models.requests[-1].json["messages"] if turn["role"] == "tool"]
    return [*said, *(question.text for question in someone.questions)]
