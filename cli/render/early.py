"""Discards keys that were pressed before a person can have read the question.

While a run works, nothing reads the terminal, and the kernel keeps what is typed. Left there, a `y` and Enter that were
meant for something else would be the answer to the next question, which may be whether a command is run. So:

- Before a question is shown, what the terminal holds is thrown away, and so is what prompt_toolkit has read beyond the
  end of the question before.
- A key counts as an answer only if a person can have read the question: not within `READING` of the moment it stood on
  the screen, nor within `READING` of a key that came too early, since a word that is being typed ends later than that.

Only of a terminal: what comes from a pipe was meant for whatever is asked.
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
"""Seconds that a person needs at least to read a question and find a key."""


def drop_pending(fd: int) -> None:
    """Throw away what a terminal holds unread. Of a pipe or a file nothing is lost."""
    if os.isatty(fd):
        termios.tcflush(fd, termios.TCIFLUSH)


class Early:
    """Tells the keys that came too early to be answers to one question.

    Args:
        source: where keys come from.
        clock: seconds that only grow.
    """

    def __init__(self, source: Input, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._terminal = os.isatty(source.fileno())
        self._clock = clock
        self._until = float("inf") if self._terminal else 0.0
        self.dropped = 0
        """How many keys came too early."""

    def drop_pending(self) -> None:
        """The question is about to be shown."""
        if self._terminal:
            from prompt_toolkit.input.typeahead import clear_typeahead

            drop_pending(self._source.fileno())
            clear_typeahead(self._source)

    def shown(self) -> None:
        """The question stands on the screen; may be called again."""
        if self._until == float("inf"):
            self._until = self._clock() + READING

    @property
    def left(self) -> float:
        """Seconds until a key counts; 0 if it does."""
        return max(self._until - self._clock(), 0.0)

    def drop(self) -> None:
        """A key came too early."""
        self.dropped += 1
        self._until = max(self._until, self._clock() + READING)
