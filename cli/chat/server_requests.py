"""Server requests to the terminal: questions, the editor, the clipboard.

Questions come from agents (`_question/*`) and from commands (`_chat/ask`). The text of a question is printed above the
prompt when it arrives, and so is the answer. While the question is open, the screen shows it above the input line
(`screen.questions`).

An answer given while the connection is lost waits for the next connection, as lines do. It is sent if the question is
then still open. Otherwise a warning says that the answer was not accepted, or may not have been.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ...actors.io import temporary
from ...protocol.control import chat, method_structs
from ...protocol.decoding import decode_json
from ...protocol.errors import CallboardError, ServerLost, UsageError
from ...protocol.kernel.questions import Question
from ..desktop import copy_text, edit_file
from ..render import paths
from ..render.choices import Value, answer_line, notes_of
from ..render.text import one_line
from ..render.wrap import diff_rows, rows
from .client import ChatClient
from .display import ScreenOutput
from .screen.application import ChatScreen
from .screen.questions import ScreenQuestion


class ServerRequests:
    """Handler of server requests.

    Attributes:
        editor: setting `editor`.
    """

    def __init__(self, screen: ChatScreen, seen: ScreenOutput, questions: PersonAsked) -> None:
        self.editor: str | None = None
        self._screen = screen
        self._seen = seen
        self._questions = questions

    async def answer(self, method: str, params: msgspec.Raw) -> Any:
        """Return the result of a request; raises `KeyError` for an unknown method."""
        if method == "_chat/ask":
            return await self._questions.ask(decode_json(params, chat.AskPerson))
        if method == "_chat/edit":
            edit = decode_json(params, chat.EditText)
            if edit.problem:
                self._seen.print(edit.problem, "error")
            async with self._screen.aside():
                return chat.Edited(text=await self.edited(edit.name, edit.text))
        if method == "_chat/copy":
            wanted = decode_json(params, chat.CopyText)
            await asyncio.to_thread(copy_text, wanted.text, self._screen.output.stream)
            return method_structs.Done()
        raise KeyError(method)

    async def edited(self, name: str, text: str) -> str | None:
        """Return the text after the user has edited it; None, after printing the error, if the editor failed."""
        try:
            return await edit_text(name, text, self.editor)
        except (UsageError, OSError) as error:
            self._seen.print(str(error), "error")
            return None


async def edit_text(name: str, text: str, editor: str | None) -> str:
    """Return the text after the user has edited it. The editor runs in a worker thread.

    Args:
        name: file name, for its suffix; the directory is a private temporary one.
        editor: setting `editor`.
    Raises:
        UsageError: there is no editor, or it failed.
        OSError: the file can't be written or read.
    """

    def edit() -> str:
        with temporary.directory("text-") as directory:
            file = directory / (Path(name.replace("\0", "")).name.lstrip(".") or "text")
            file.write_text(text, "utf-8")
            edit_file(file, editor)
            return file.read_text("utf-8", "replace")

    return await asyncio.to_thread(edit)


@dataclass
class _Given:
    """Unconfirmed answer. `sent`: the server may have received it."""

    question: Question
    value: Value
    sent: bool = False
    under_way: bool = False


class QuestionNotice(msgspec.Struct):
    """Notification `_question/asked`, with the question as a struct."""

    question: Question


class Print(Protocol):
    """Callback that prints lines above the prompt, in one of the styles of `render.text`."""

    def __call__(self, text: str, style: str) -> None: ...


class PersonAsked:
    """Open questions of a chat and their pending answers.

    Args:
        print: prints text above the prompt; `show` prints lines unchanged.
        ours: returns True if a run belongs to this chat, that is, if `_chat/began` has named it.
        coloured: True colours diffs.
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
        self._open: dict[str, ScreenQuestion] = {}
        self._early: dict[str, QuestionNotice] = {}  # questions of runs that are not known to belong to this chat
        self._given: dict[str, _Given] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def asked(self, told: QuestionNotice) -> None:
        """Put an agent's question on the screen, once. That of a run not known to be the chat's waits for `began`."""
        question = told.question
        if question.id in self._open or question.id in self._given:
            return
        if not self._ours(question.run):
            self._early[question.id] = told
            return
        who = paths.asker({"node": question.node, "actor": question.actor, "permission": question.permission})

        def answered(value: Value) -> None:
            del self._open[question.id]
            self._send_answer(asking, value)
            self._given[question.id] = _Given(question, value)
            self._begin(question.id)

        asking = self._open[question.id] = self._put(question, who or "the agent", answered)

    def began(self, run: str) -> None:
        """Put the questions of this run on the screen that have arrived before `_chat/began`."""
        for id in [id for id, told in self._early.items() if told.question.run == run]:
            self.asked(self._early.pop(id))

    def closed(self, told: method_structs.Closed) -> None:
        """Remove a question that was answered elsewhere or withdrawn, and print who closed it."""
        self._early.pop(told.question, None)
        asking = self._open.pop(told.question, None)
        if asking is not None:
            self._screen.questions.remove(asking)
            by = f": {one_line(told.by, 60)}" if told.by else ""
            self._print(f"  {_number(asking)}(closed{by})", "dim")

    def only(self, open: set[str]) -> None:
        """Close all questions except these, after a reconnect: the others were closed meanwhile."""
        self._early = {id: told for id, told in self._early.items() if id in open}
        for id in self._open.keys() - open:
            self.closed(method_structs.Closed(subscription="", question=id, by=""))
        for id in [id for id, given in self._given.items() if not given.under_way]:
            if id in open:
                self._begin(id)
            else:
                given = self._given.pop(id)
                taken = "possibly not accepted" if given.sent else "not accepted"
                self._print(f"{taken}, because the question is closed: {_answer_to(given)}", "warning")

    async def ask(self, wanted: chat.AskPerson) -> chat.PersonAnswered:
        """Ask a question of a command and return the answer."""
        answer: asyncio.Future[Value] = asyncio.get_running_loop().create_future()

        def answered(value: Value) -> None:
            self._send_answer(asking, value)
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
    ) -> ScreenQuestion:
        """Print the question above the prompt and add it to the screen."""
        asking = self._screen.questions.add(question, who, answered, about, filters=filters)
        self._print(f"? {_number(asking)}{who} asks", "question")
        columns = self._screen.output.size[0]
        self._print("\n".join(rows(question.before_diff, columns, arguments=question.permission is not None)), "text")
        if question.diff:
            self._show(diff_rows(question.diff, columns, coloured=self._coloured))
        if question.problem:
            self._print("\n".join(rows(f"({one_line(question.problem, 200)})", columns)), "warning")
        for note in notes_of(question):
            self._print("\n".join(rows(f"({one_line(note, 200)})", columns)), "dim")
        return asking

    def _send_answer(self, asking: ScreenQuestion, value: Value) -> None:
        self._print(f"  {_number(asking)}= {answer_line(asking.question, value)}", "text")

    def _begin(self, id: str) -> None:
        self._given[id].under_way = True
        task = asyncio.get_running_loop().create_task(self._answer(id))
        self._tasks.add(task)  # the event loop holds only a weak reference to a task
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, id: str) -> None:
        given = self._given[id]
        # A connection lost after sending leaves it unknown whether the server accepted the answer.
        given.sent = given.sent or not self._client.lost
        try:
            done = await self._client.ask("_question/answer", method_structs.Answered, question=id, value=given.value)
        except ServerLost:
            given.under_way = False
            self._print("  (sent when the connection is back)", "dim")
            return
        except CallboardError as error:
            self._print(str(error), "error")
        else:
            if not done.answered:
                self._print(f"not accepted, because the question is closed: {_answer_to(given)}", "warning")
        del self._given[id]


def _number(asking: ScreenQuestion) -> str:
    """Return the number prefix of a question if several were open at once."""
    return f"[{asking.number}] " if asking.several else ""


def _answer_to(given: _Given) -> str:
    question = given.question
    return f"{answer_line(question, given.value)} (to: {one_line(question.text.strip().partition(chr(10))[0], 100)})"
