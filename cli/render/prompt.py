"""Terminal front end for questions: asks one at a time, in order of arrival.

The dialog blocks, so it runs in a worker thread. The traps:

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
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import trio

from ...protocol.kernel.questions import Question
from .choices import Value
from .dialog import Dialog, WithdrawnError, answer_of
from .hangup import HANGS_UP_WITHIN, is_closed


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
