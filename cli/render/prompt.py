"""The terminal as a front end of the question desk: asks one question at a time, in the order they came.

The dialog itself blocks, so it runs in a worker thread. The traps:

- A cancelled run must get its terminal back. Abandoning the thread would leave the terminal in raw mode with
  a thread reading from it, so a withdrawn dialog gets a signal to close and is waited for, half a
  second at most.
- In raw mode Ctrl-C is a key and no signal. It is turned back into the signal, so that there is one way only
  in which Ctrl-C ends a run.
- Ctrl-D means that no person is at the terminal (any more). A question with a default gets it; otherwise
  the front end leaves the desk, which then gives up on what only a person could have answered.
- A terminal that is closed can't be read any more, a moment before SIGHUP comes. That is no answer of a person's:
  the signal is waited for, which leaves a durable run to the next process.
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


class Desk(Protocol):
    """The part of the question desk that a front end talks back to."""

    def attach(self, front_end: TerminalPrompts) -> AbstractContextManager[None]:
        """Shows questions to the front end while the block lasts."""

    def answer(self, question_id: str, value: Value, by: str = "") -> bool:
        """Answers; False if another was faster."""


class TerminalPrompts:
    """Asks the person at the terminal.

    Args:
        desk: where answers go.
        aside: clears the screen of progress for the length of a `with` block.
        new_dialog: makes the dialog for a question, given how many others wait.
    """

    name = "terminal"

    def __init__(
        self,
        desk: Desk,
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
        """A question was raised; it waits for its turn."""
        self._waiting.append(question)
        self._arrived.set()

    def closed(self, question_id: str, _by: str) -> None:
        """Withdraws it: it was answered elsewhere, or cancelled."""
        self._waiting = deque(question for question in self._waiting if question.id != question_id)
        if self._asking is not None and self._asking[0] == question_id:
            self._asking[1].cancel()

    # --- the terminal's own task ------------------------------------------------------------------------

    async def serve(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Stands at the desk and asks what is raised, until cancelled or the person goes (Ctrl-C, Ctrl-D)."""
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
