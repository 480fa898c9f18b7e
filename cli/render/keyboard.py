"""Keyboard input at a terminal: discard keys typed too early, read a single key, detect a closed terminal.

While a run works, nothing reads the terminal, and the kernel buffers typed keys. Without this module a `y` and Enter
typed for another purpose would answer the next question, possibly a permission for a command. Therefore:

- Before a question is shown, the terminal's buffer and prompt_toolkit's typeahead are flushed.
- A key counts only `READING` seconds after the question has appeared, and `READING` seconds after the last key that
  came too early: a word that is being typed ends later.

Only terminals are treated this way. Input from a pipe answers the questions.

While `read_key` awaits a key, the terminal is in a mode in which Ctrl-C is an ordinary key. A signal must not end the
process in this state (the handlers of `start` would). So signals are raised as exceptions, and the terminal is restored
before the process ends.
"""

from __future__ import annotations

import errno
import os
import signal
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

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
        """Seconds until a key counts; 0 if it does, infinite at a terminal until `question_displayed` is called."""
        return max(self._until - self._clock(), 0.0)

    def drop(self) -> None:
        """Discard a key and restart the reading time."""
        self.dropped += 1
        self._until = max(self._until, self._clock() + READING)


_CTRL_C, _CTRL_D = b"\x03", b"\x04"
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def read_key(fd: int) -> str:
    """Return the pressed key: a character, "\\n" for Enter, "" for any other key (an arrow, an incomplete character).

    Blocks. Input typed before the call, or within the time that a user needs to read the prompt, is discarded.

    Raises:
        KeyboardInterrupt: the user pressed Ctrl-C.
        EOFError: the user pressed Ctrl-D, or the terminal is closed.
        click.exceptions.Exit: a signal ends the process.
    """
    with _unbuffered(fd), _signals_as_exceptions():
        time.sleep(READING)
        drop_pending(fd)
        data = os.read(fd, 64)
    if data[:1] == _CTRL_C:
        raise KeyboardInterrupt
    if data[:1] in (b"", _CTRL_D):
        raise EOFError
    if data in (b"\r", b"\n"):
        return "\n"
    with suppress(UnicodeDecodeError):
        text = data.decode()
        return text if len(text) == 1 and text.isprintable() else ""
    return ""


@contextmanager
def _unbuffered(fd: int) -> Iterator[None]:
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSAFLUSH)
        mode = termios.tcgetattr(fd)
        mode[3] &= ~termios.ISIG
        termios.tcsetattr(fd, termios.TCSANOW, mode)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    def end(number: int, _frame: object) -> None:
        raise click.exceptions.Exit(128 + number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, action in before.items():
        if action != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)


HANGS_UP_WITHIN = 2.0
"""Seconds within which SIGHUP arrives from a closed terminal, if at all."""


def is_closed() -> bool:
    """Return True if stdin was a terminal that has been closed."""
    try:
        termios.tcgetattr(0)
    except termios.error as error:
        return bool(error.args and error.args[0] == errno.EIO)
    return False
