"""`root.inbox`: the open questions of a root, and the front ends that show them to users.

class Web:
    name = "web"

    def on_question(self, question): ...
    def on_question_closed(self, question_id, by): ...

with root.inbox.attach(Web()):
    ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, final

from ...protocol.errors import UsageError
from ...protocol.kernel.questions import Question
from ...supervisors import OpenQuestions


class FrontEnd(Protocol):
    """Shows questions to a user. Its methods return at once; `Inbox.answer` may be called from anywhere, later.

    Attributes:
        name: in events of answers.
    """

    @property
    def name(self) -> str:
        """Name of the front end in events of answers."""
        ...

    def on_question(self, question: Question) -> None:
        """Show a question that was just opened."""

    def on_question_closed(self, question_id: str, by: str) -> None:
        """Remove a question that the front end `by` answered, or that needs no answer any more."""


@final
class Inbox:
    """Open questions of all runs of a root. Its methods may be called from any thread."""

    def __init__(self, questions: OpenQuestions) -> None:
        self._questions = questions

    @property
    def open(self) -> tuple[Question, ...]:
        """Every question that has no answer yet, oldest first."""
        return self._questions.open

    @contextmanager
    def attach(self, front_end: FrontEnd) -> Iterator[None]:
        """Show questions to a front end while the block runs, beginning with the questions that are already open.

        If the block runs in an asyncio loop, the methods are called in that loop, otherwise in the loop of the root.

        Raises:
            UsageError: the front end lacks a method.
        """
        for method in ("on_question", "on_question_closed"):
            if not callable(getattr(front_end, method, None)):
                raise UsageError(f"root.inbox.attach({front_end!r}): it has no method `{method}`")
        with self._questions.attach(_FrontEndAdapter(front_end)):
            yield

    def answer(self, question_id: str, value: str | list[str], *, by: str = "") -> bool:
        """Answer a question. `root.answer` also answers questions of interrupted runs, and waits until the answer is on
        disk.

        Returns:
            False if the question is not open: already answered, withdrawn, or never asked.
        """
        return self._questions.answer(question_id, value, by)


@final
class _FrontEndAdapter:
    """Adapter from `FrontEnd` to the interface of `supervisors.escalation`."""

    def __init__(self, front_end: FrontEnd) -> None:
        self.name: str = front_end.name
        self.asked = front_end.on_question
        self.closed = front_end.on_question_closed
