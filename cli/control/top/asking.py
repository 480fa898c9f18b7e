"""Asks one question at the terminal in place of another display."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import trio
from prompt_toolkit.input import create_input
from prompt_toolkit.output.vt100 import Vt100_Output

from ....protocol.questions import Question
from ...render.dialog import Dialog, Value, WithdrawnError


async def ask_at_terminal(question: Question, on_dialog: Callable[[Callable[[], None]], None]) -> Value | None:
    """The answer; None if there is none: Ctrl-C, Ctrl-D, or the question is no longer open.

    Args:
        on_dialog: is given what takes the question off the screen.
    """
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))  # where the table is
    output.enable_cpr = False
    dialog = Dialog(question, terminal=(create_input(sys.stdin), output, sys.stdout))
    on_dialog(dialog.close)
    try:
        return await trio.to_thread.run_sync(dialog.run, abandon_on_cancel=True)
    except (KeyboardInterrupt, EOFError, WithdrawnError):
        return None
    finally:
        if not dialog.ended.is_set():  # we are to end: the terminal must be as it was before
            dialog.close()
            with trio.move_on_after(1.0, shield=True):
                await trio.to_thread.run_sync(dialog.ended.wait, 0.5)
