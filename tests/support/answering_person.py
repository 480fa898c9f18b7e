"""A person at a front end, who answers by a function."""

from __future__ import annotations

from collections.abc import Callable

import callboard
from callboard.protocol.kernel.questions import Question


class Person:
    """A front end whose person answers by a function, one question after the other."""

    name = "person"

    def __init__(self, root: callboard.Root, answer: Callable[[Question], str | None]) -> None:
        self.asked_for: list[Question] = []
        self.closed_by: list[str] = []
        self._root = root
        self._answer = answer

    def asked(self, question: Question) -> None:
        self.asked_for.append(question)
        answer = self._answer(question)
        if answer is not None:
            self._root.questions.answer(question.id, answer, by=self.name)

    def closed(self, question_id: str, by: str) -> None:
        self.closed_by.append(by)
