"""The open questions, and who watches them: a front end of the desk at the root (`supervisors.escalation`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from ....protocol.control.things import QuestionAsked, QuestionClosed
from ....protocol.questions import Question
from .feed import Feed

QuestionFeed: TypeAlias = "Feed[QuestionAsked | QuestionClosed]"
Concerns: TypeAlias = Callable[[Question], bool]


class Asking:
    """Attributes:
    open: the questions on the desk, by id, oldest first.
    """

    name = "control"

    def __init__(self, bound: int) -> None:
        self.open: dict[str, Question] = {}
        self._bound = bound
        self._feeds: dict[QuestionFeed, Concerns] = {}

    @contextlib.contextmanager
    def watch(self, concerns: Concerns) -> Iterator[QuestionFeed]:
        """The open ones that concern the reader, then each as it is asked or closed."""
        asked = [QuestionAsked(shown(question)) for question in self.open.values() if concerns(question)]
        feed: QuestionFeed = Feed(self._bound, asked)
        self._feeds[feed] = concerns
        try:
            yield feed
        finally:
            del self._feeds[feed]

    def asked(self, question: Question) -> None:
        """The desk shows a question."""
        self.open[question.id] = question
        self._tell(question, lambda: QuestionAsked(shown(question)))

    def closed(self, question_id: str, by: str) -> None:
        """The desk closes one."""
        question = self.open.pop(question_id, None)
        if question is not None:
            self._tell(question, lambda: QuestionClosed(question_id, by))

    def _tell(self, question: Question, what: Callable[[], QuestionAsked | QuestionClosed]) -> None:
        if self._feeds:
            told = what()
            for feed, concerns in self._feeds.items():
                if concerns(question):
                    feed.put(told)


def shown(question: Question) -> Any:
    """A question as JSON values."""
    return msgspec.to_builtins(question)
