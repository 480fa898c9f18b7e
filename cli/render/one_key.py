"""Single key presses at a terminal, without Enter.

While a key is awaited, the terminal is in a mode in which Ctrl-C is an ordinary key. A signal must not end the process
in this state (the handlers of `start` would). So signals are raised as exceptions, and the terminal is restored before
the process ends.
"""

from __future__ import annotations

import os
import signal
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from .early import READING, drop_pending

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
