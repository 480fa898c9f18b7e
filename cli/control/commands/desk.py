"""The question desk of a server, for a prompt at this terminal: what is open at one run is shown, answers are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from ....protocol.control import own
from ....protocol.errors import CallboardError
from ..client import Client
from ..subscriptions import QuestionWatch

if TYPE_CHECKING:
    from ...render.prompt import TerminalPrompts

Value = str | list[str]


class RemoteDesk:
    """Where `TerminalPrompts` gets questions and puts answers.

    Args:
        note: shows a line about what became of an answer.

    Attributes:
        mine: ids of the questions that were answered here.
    """

    def __init__(self, client: Client, run: str, nursery: trio.Nursery, note: Callable[[str], None]) -> None:
        self.mine: set[str] = set()
        self._client = client
        self._watch = QuestionWatch(client, run)
        self._nursery = nursery
        self._note = note
        self._front_end: TerminalPrompts | None = None

    @contextmanager
    def attach(self, front_end: TerminalPrompts) -> Iterator[None]:
        """Shows questions to the prompt while the block lasts."""
        self._front_end = front_end
        try:
            for question in self._watch.open.values():
                front_end.asked(question)
            yield
        finally:
            self._front_end = None

    async def listen(self) -> None:
        """Hears of questions until cancelled. A caller that may not see them is not asked."""
        try:
            async for change in self._watch:
                if self._front_end is None:
                    continue
                if change.what == "asked":
                    self._front_end.asked(change.question)
                else:
                    self._front_end.closed(change.question.id, change.by)
        except CallboardError as error:
            self._note(f"questions can't be answered here: {error}")

    def answer(self, question_id: str, value: Value, _by: str = "") -> bool:
        """Sends the answer; its outcome comes later."""
        self.mine.add(question_id)
        self._nursery.start_soon(self._send, question_id, value)
        return True

    async def _send(self, question_id: str, value: Value) -> None:
        why = "somebody else was faster, or it was withdrawn"
        try:
            if (await self._client.ask("_question/answer", own.Answered, question=question_id, value=value)).answered:
                return
        except CallboardError as error:
            why = str(error)
        self.mine.discard(question_id)
        self._note(f"the answer was not taken: {why}")
