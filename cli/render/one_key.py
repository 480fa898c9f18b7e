"""One key pressed at a terminal, without Enter.

While it is waited for, the terminal is in raw enough a mode that Ctrl-C is a key; so a signal that ends the process
must not end it there (`start` has it end at once): it comes as an exception, and the terminal is as it was before.
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
    """The key: a character, "\\n" for Enter, "" for one that stands for none (an arrow, an unfinished character).

    What was typed before the call, or within the time that a person needs to read what is asked, is thrown away.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        EOFError: Ctrl-D, or the terminal is gone.
        click.exceptions.Exit: a signal that ends the process.
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
