"""Discard keys that were pressed before the user could read the question.

While a run works, nothing reads the terminal, and the kernel buffers typed keys. Without this module a `y` and Enter
that were meant for something else would answer the next question, possibly a permission for a command. Therefore:

- Before a question is shown, the terminal's buffer and prompt_toolkit's typeahead are flushed.
- A key counts only `READING` seconds after the question has appeared, and `READING` seconds after the last key that
  came too early: a word that is being typed ends later.

Only terminals are treated this way. Input from a pipe is meant for the questions.
"""

from __future__ import annotations

import os
import termios
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit.input import Input

READING = 0.15
"""Seconds that a user needs at least to read a question and find a key."""


def drop_pending(fd: int) -> None:
    """Discard the unread input of a terminal. A pipe or a file loses nothing."""
    if os.isatty(fd):
        termios.tcflush(fd, termios.TCIFLUSH)


class Early:
    """Detector of keys that are too early to answer a question.

    Args:
        source: key input.
        clock: monotonic seconds.
    """

    def __init__(self, source: Input, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._terminal = os.isatty(source.fileno())
        self._clock = clock
        self._until = float("inf") if self._terminal else 0.0
        self.dropped = 0
        """Number of keys that were discarded."""

    def drop_pending(self) -> None:
        """Flush pending keys. Call it right before the question appears."""
        if self._terminal:
            from prompt_toolkit.input.typeahead import clear_typeahead

            drop_pending(self._source.fileno())
            clear_typeahead(self._source)

    def question_displayed(self) -> None:
        """Start the reading time. Call it when the question is on the screen; repeated calls have no effect."""
        if self._until == float("inf"):
            self._until = self._clock() + READING

    @property
    def remaining(self) -> float:
        """Seconds until a key counts; 0 if it does."""
        return max(self._until - self._clock(), 0.0)

    def drop(self) -> None:
        """Discard a key and restart the reading time."""
        self.dropped += 1
        self._until = max(self._until, self._clock() + READING)
