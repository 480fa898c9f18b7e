"""Terminal dialog for questions.

`Dialog` asks one question and blocks. Everything is drawn on stderr, so that stdout holds only the result.
prompt_toolkit erases its drawing when the answer arrives; the question and one line with the answer remain in the
scrollback. Keys pressed before the question could be read are discarded (`keyboard.Early`).

`TerminalPrompts` is the front end of a run: it asks one question at a time, in order of arrival, and runs each dialog
in a worker thread. The traps:

- A cancelled run must restore its terminal. An abandoned thread would leave the terminal in raw mode with a thread
  reading from it. So a withdrawn dialog gets a signal to close, and its end is awaited for at most half a second.
- In raw mode Ctrl-C is a key and not a signal. It is turned back into the signal, so that Ctrl-C ends a run in only one
  way.
- Ctrl-D means that the user no longer answers. A question with a default gets it; otherwise the front end detaches from
  the question desk, which then gives up on questions that only a user could answer.
- A closed terminal can't be read a moment before SIGHUP arrives. That is not an answer: the task waits for the signal,
  which leaves a durable run to the next process.
- Another front end or a timeout may answer first: the dialog on the screen is then withdrawn.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO, TypeVar

import trio
from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, create_app_session
from prompt_toolkit.application.current import get_app
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output

from ...protocol.kernel.questions import Question, understood
from . import paths
from .choices import Value, answer_line, menu_of, notes_of, value_of
from .keyboard import HANGS_UP_WITHIN, Early, is_closed
from .text import colours, counted, one_line, paint, safe
from .wrap import diff_rows, rows

_CLOSE_WITHIN = 0.5
_MENU = 8
"""Rows reserved for the menu of a permission question."""

_T = TypeVar("_T")


class WithdrawnError(Exception):
    """The question was closed while its dialog was open."""


class Dialog:
    """Dialog for one question.

    Args:
        question: question to display.
        more: number of further open questions.
        terminal: key input, drawing output and text stream; default: stdin and stderr.
        clock: monotonic seconds, for keys that come too early.
    """

    def __init__(
        self,
        question: Question,
        *,
        more: int = 0,
        terminal: tuple[Input, Output, TextIO] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._question = question
        self._more = more
        self._terminal = terminal
        self._clock = clock
        self._lock = threading.Lock()
        self._withdrawn = False
        self._close: Callable[[], None] | None = None
        self.early: Early | None = None
        self.ended = threading.Event()

    def run(self) -> Value:
        """Ask until there is a valid answer. Blocks.

        Raises:
            KeyboardInterrupt: the user pressed Ctrl-C.
            EOFError: the user pressed Ctrl-D and gives no answer.
            WithdrawnError: `close` was called.
        """
        try:
            source, sink, stream = self._terminal or (create_input(sys.stdin), terminal_behind(sys.stderr), sys.stderr)
            with create_app_session(input=source, output=sink):
                size = sink.get_size()
                self.early = Early(source, self._clock)
                self.early.drop_pending()
                self._write(stream, self._headline(colours(stream), size.columns, size.rows))
                value = self._ask(colours(stream))
                self._write(stream, f"  = {answer_line(self._question, value)}\n")
            return value
        finally:
            self.ended.set()

    def close(self) -> None:
        """Remove the question from the screen. May be called from any thread, at any time."""
        with self._lock:
            self._withdrawn = True
            if self._close is not None:
                self._close()

    # --- asking -----------------------------------------------------------------------------------------

    def _ask(self, coloured: bool) -> Value:
        menu = menu_of(self._question, self.early)
        if menu is None:
            return understood(self._question, self._text(coloured))
        return value_of(self._question, self._run(menu.application()))

    def _text(self, coloured: bool) -> str:
        depth = None if coloured else ColorDepth.DEPTH_1_BIT
        session: PromptSession[str] = PromptSession(
            "  > ", erase_when_done=True, color_depth=depth, is_password=self._question.secret
        )
        with self._closable(session.app):
            return session.prompt(pre_run=self._leave_if_withdrawn, handle_sigint=False, set_exception_handler=False)

    def _run(self, application: Application[_T]) -> _T:
        with self._closable(application):
            return application.run(pre_run=self._leave_if_withdrawn, handle_sigint=False, set_exception_handler=False)

    # --- closing from outside ---------------------------------------------------------------------------

    @contextmanager
    def _closable(self, application: Application[_T]) -> Iterator[None]:
        def leave() -> None:
            if not application.is_done:
                application.exit(exception=WithdrawnError())

        def leave_soon() -> None:
            if application.loop is not None:
                application.loop.call_soon_threadsafe(leave)

        with self._lock:
            if self._withdrawn:
                raise WithdrawnError
            self._close = leave_soon
        try:
            yield
        finally:
            with self._lock:
                self._close = None

    def _leave_if_withdrawn(self) -> None:
        """End the application if `close` was called before its loop started. Runs inside that loop."""
        with self._lock:
            if self._withdrawn:
                get_app().exit(exception=WithdrawnError())

    # --- scrollback -------------------------------------------------------------------------------------

    def _headline(self, coloured: bool, width: int, height: int) -> str:
        question = self._question
        name = paths.asker({"node": question.node, "actor": question.actor, "permission": question.permission})
        who = f"{name} asks" if name else "Permission" if question.permission else "A question"
        waiting = f" ({self._more} more waiting)" if self._more else ""
        title = safe(f"? {who}{waiting}")
        lines = [paint(title, "title") if coloured else title]
        text = rows(question.before_diff, width, arguments=question.permission is not None)
        text += diff_rows(question.diff, width, coloured=coloured) if question.diff else []
        lines += text
        if question.problem:
            problem = f"  {one_line(question.problem)}"
            lines.append(paint(problem, "warning") if coloured else problem)
        notes = notes_of(question)
        if question.timeout is not None:
            notes.append(f"continues without an answer after {question.timeout:g} s")
        if notes:
            lines += rows(f"({one_line('; '.join(notes), 200)})", width)
        if len(lines) > height - _MENU:
            long = f"({one_line(text[0], 60)} That takes {counted(len(text), 'row')}: scroll up to read it all.)"
            lines += rows(long, width)
        return "\n".join(lines) + "\n"

    def _write(self, stream: TextIO, text: str) -> None:
        stream.write(text)
        stream.flush()


async def answer_of(dialog: Dialog) -> Value:
    """Run the dialog in a worker thread and return its answer; raises as `Dialog.run` does.

    On cancellation the dialog is closed, and its end is awaited for at most a second: the terminal must leave raw mode
    first.
    """
    try:
        return await trio.to_thread.run_sync(dialog.run, abandon_on_cancel=True)
    finally:
        if not dialog.ended.is_set():
            dialog.close()
            with trio.move_on_after(2 * _CLOSE_WITHIN, shield=True):
                await trio.to_thread.run_sync(dialog.ended.wait, _CLOSE_WITHIN)


def terminal_behind(stream: TextIO) -> Output:
    """Return a terminal output for a stream, without cursor position requests.

    Not every terminal answers such a request, and a late answer would end up in the shell's input.
    """
    output = Vt100_Output.from_pty(stream, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output


class AnswerSink(Protocol):
    """Interface of the question desk for front ends."""

    def attach(self, front_end: TerminalPrompts) -> AbstractContextManager[None]:
        """Send questions to the front end for the duration of the `with` block."""

    def answer(self, question_id: str, value: Value, by: str = "") -> bool:
        """Submit an answer; return False if another front end was faster."""


class TerminalPrompts:
    """Front end that asks the user at the terminal.

    Args:
        desk: receiver of answers.
        aside: context manager that clears the progress display.
        new_dialog: returns the dialog for a question, given the number of further open questions.
    """

    name = "terminal"

    def __init__(
        self,
        desk: AnswerSink,
        aside: Callable[[], AbstractContextManager[None]],
        new_dialog: Callable[[Question, int], Dialog] = lambda question, more: Dialog(question, more=more),
    ) -> None:
        self._desk = desk
        self._aside = aside
        self._new_dialog = new_dialog
        self._waiting: deque[Question] = deque()
        self._arrived = trio.Event()
        self._asking: tuple[str, trio.CancelScope] | None = None

    # --- called by the desk -----------------------------------------------------------------------------

    def asked(self, question: Question) -> None:
        """Queue a new question."""
        self._waiting.append(question)
        self._arrived.set()

    def closed(self, question_id: str, _by: str) -> None:
        """Withdraw a question that was answered elsewhere or cancelled."""
        self._waiting = deque(question for question in self._waiting if question.id != question_id)
        if self._asking is not None and self._asking[0] == question_id:
            self._asking[1].cancel()

    # --- the terminal's own task ------------------------------------------------------------------------

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Attach to the desk and ask its questions until cancelled or until the user stops answering (Ctrl-D)."""
        with self._desk.attach(self):
            task_status.started()
            await self._ask_all()

    async def _ask_all(self) -> None:
        present = True
        while present:
            while not self._waiting:
                self._arrived = trio.Event()
                await self._arrived.wait()
            question = self._waiting.popleft()
            with trio.CancelScope() as scope:
                self._asking = (question.id, scope)
                present = await self._put(question)
            self._asking = None

    async def _put(self, question: Question) -> bool:
        with self._aside():
            try:
                value = await answer_of(self._new_dialog(question, len(self._waiting)))
            except KeyboardInterrupt:
                os.kill(os.getpid(), signal.SIGINT)
            except (EOFError, OSError) as error:
                if is_closed():
                    await trio.sleep(HANGS_UP_WITHIN)
                elif not isinstance(error, EOFError):
                    raise
                if question.default is None:
                    return False
                self._answer(question, question.default, by="default")
                return True
            except WithdrawnError:
                pass
            else:
                self._answer(question, value, by=self.name)
                return True
        return await trio.sleep_forever()  # until the question is closed, by the signal or by another answer

    def _answer(self, question: Question, value: Value, *, by: str) -> None:
        self._asking = None
        self._desk.answer(question.id, value, by)
