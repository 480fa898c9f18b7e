"""What a person is asked in a chat: by agents (`_question/*`) and by commands (`_chat/ask`).

The text of a question is written above the prompt when it comes, and the answer when there is one; meanwhile the screen
has it above the input line (`screen.questions`).

An answer that is given while the connection to the server is lost waits for the next one, as lines do. It is sent if
the question is still open then; else the person is told that it was not taken, or may not have been.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ...protocol.control import chat, own
from ...protocol.errors import CallboardError, ServerLost
from ...protocol.kernel.questions import Question
from ..render import paths
from ..render.choices import Value
from ..render.diff import diff_rows
from ..render.text import one_line
from ..render.wrap import rows
from .client import ChatClient
from .screen.application import ChatScreen
from .screen.questions import Asking


@dataclass
class _Given:
    """An answer that the server has not confirmed; `sent`: it may have got there."""

    question: Question
    value: Value
    sent: bool = False
    under_way: bool = False


class Asked(msgspec.Struct):
    """`_question/asked`, with the question as a struct."""

    question: Question


class Print(Protocol):
    """Writes lines above the prompt, in one of the house's styles."""

    def __call__(self, text: str, style: str) -> None: ...


class PersonAsked:
    """See the module.

    Args:
        print: writes text above the prompt; `show` lines as they are.
        ours: whether a run belongs to this chat: `_chat/began` has named it.
        coloured: whether diffs are coloured.
    """

    def __init__(
        self,
        client: ChatClient,
        screen: ChatScreen,
        print: Print,
        show: Callable[[list[str]], None],
        ours: Callable[[str], bool],
        *,
        coloured: bool,
    ) -> None:
        self._show = show
        self._coloured = coloured
        self._client = client
        self._screen = screen
        self._print = print
        self._ours = ours
        self._open: dict[str, Asking] = {}
        self._early: dict[str, Asked] = {}  # by runs that are not ours, as far as is known
        self._given: dict[str, _Given] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def asked(self, told: Asked) -> None:
        """An agent asks."""
        question = told.question
        if question.id in self._open or question.id in self._given:
            return
        if not self._ours(question.run):
            self._early[question.id] = told
            return
        who = paths.asker({"node": question.node, "actor": question.actor, "permission": question.permission})

        def answered(value: Value) -> None:
            del self._open[question.id]
            self._tell_answer(asking, value)
            self._given[question.id] = _Given(question, value)
            self._begin(question.id)

        asking = self._open[question.id] = self._put(question, who or "the agent", answered)

    def began(self, run: str) -> None:
        """A run is ours, which may have asked before that was told."""
        for id in [id for id, told in self._early.items() if told.question.run == run]:
            self.asked(self._early.pop(id))

    def closed(self, told: own.Closed) -> None:
        """It is answered elsewhere, or withdrawn."""
        self._early.pop(told.question, None)
        asking = self._open.pop(told.question, None)
        if asking is not None:
            self._screen.questions.remove(asking)
            by = f": {one_line(told.by, 60)}" if told.by else ""
            self._print(f"  {_number(asking)}(closed{by})", "dim")

    def only(self, open: set[str]) -> None:
        """Of the questions of agents these alone are open: others were closed while no connection was there."""
        self._early = {id: told for id, told in self._early.items() if id in open}
        for id in self._open.keys() - open:
            self.closed(own.Closed(subscription="", question=id, by=""))
        for id in [id for id, given in self._given.items() if not given.under_way]:
            if id in open:
                self._begin(id)
            else:
                given = self._given.pop(id)
                taken = "perhaps not taken" if given.sent else "not taken"
                self._print(f"{taken}, since the question is closed: {_answer_to(given)}", "warning")

    async def ask(self, wanted: chat.AskPerson) -> chat.PersonAnswered:
        """A command asks."""
        answer: asyncio.Future[Value] = asyncio.get_running_loop().create_future()

        def answered(value: Value) -> None:
            self._tell_answer(asking, value)
            if not answer.done():
                answer.set_result(value)

        asking = self._put(wanted.question(), "callboard", answered, tuple(wanted.about), filters=True)
        self._screen.wake()
        try:
            return chat.PersonAnswered(value=await answer)
        finally:
            self._screen.questions.remove(asking)
            self._screen.wake()

    def _put(
        self,
        question: Question,
        who: str,
        answered: Callable[[Value], None],
        about: tuple[str, ...] = (),
        *,
        filters: bool = False,
    ) -> Asking:
        """Writes the question above the prompt, and has the screen ask it."""
        asking = self._screen.questions.add(question, who, answered, about, filters=filters)
        self._print(f"? {_number(asking)}{who} asks", "question")
        columns = self._screen.output.size[0]
        self._print("\n".join(rows(question.before_diff, columns, arguments=question.permission is not None)), "text")
        if question.diff:
            self._show(diff_rows(question.diff, columns, coloured=self._coloured))
        default = question.default if question.default and not question.secret else None
        for note in (question.problem, question.rule, f"default: {default}" if default else None):
            if note and f"[{note}]" not in question.text:
                style = "warning" if note is question.problem else "dim"
                self._print("\n".join(rows(f"({one_line(note, 200)})", columns)), style)
        return asking

    def _tell_answer(self, asking: Asking, value: Value) -> None:
        self._print(f"  {_number(asking)}= {_shown(asking.question, value)}", "text")

    def _begin(self, id: str) -> None:
        self._given[id].under_way = True
        task = asyncio.get_running_loop().create_task(self._answer(id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, id: str) -> None:
        given = self._given[id]
        given.sent = given.sent or not self._client.lost
        try:
            done = await self._client.ask("_question/answer", own.Answered, question=id, value=given.value)
        except ServerLost:
            given.under_way = False
            self._print("  (sent when the connection is back)", "dim")
            return
        except CallboardError as error:
            self._print(str(error), "error")
        else:
            if not done.answered:
                self._print(f"not taken, since the question is closed: {_answer_to(given)}", "warning")
        del self._given[id]


def _number(asking: Asking) -> str:
    """By which a question is known, where there were several."""
    return f"[{asking.number}] " if asking.several else ""


def _answer_to(given: _Given) -> str:
    question = given.question
    return f"{_shown(question, given.value)} (to: {one_line(question.text.strip().partition(chr(10))[0], 100)})"


def _shown(question: Question, value: Value) -> str:
    """An answer as it may be seen."""
    if question.secret:
        return "(not shown)"
    return one_line(", ".join(value) if isinstance(value, list) else value) or "(empty)"
