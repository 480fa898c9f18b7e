"""Whether a SIGHUP means that the terminal we were started in is gone, or asks for a reload.

A closed terminal (its window, an SSH connection) sends SIGHUP to what runs in it, and has been taken from the session
by then: `/dev/tty` can't be opened any more. What was started without a terminal (`setsid`, systemd) never had one to
lose, and `nohup` says that its loss is to be ignored.

A program in the background may also outlive its terminal without any signal: a shell that exits leaves it alone. That
is noticed by looking now and then, since a SIGHUP that comes hours later is no hangup.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import final

import trio

TERMINAL = "/dev/tty"
LOOK_EVERY = 5.0
"""Seconds between two looks. A terminal that is gone at both was outlived: the SIGHUP of its end comes at once."""


@final
class TerminalLife:
    """See the module. Made when the program starts, before it handles SIGHUP itself."""

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self._bound = not ignored and _has_terminal()
        self._streams = [number for number in (0, 1, 2) if os.isatty(number)]

    def is_over(self) -> bool:
        """Whether a SIGHUP that comes now is that of the terminal's end."""
        return self._bound and not _has_terminal()

    def let_go(self) -> None:
        """The terminal is gone: what is still written to it goes nowhere, instead of being an error each time."""
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for number in self._streams:
            os.dup2(nowhere, number)
        os.close(nowhere)

    async def watch(self) -> None:
        """Notice that the terminal has been outlived, until that is so."""
        was_gone = False
        while self._bound:
            await trio.sleep(LOOK_EVERY)
            is_gone = self.is_over()
            if is_gone and was_gone:
                self._bound = False
                self.let_go()
            was_gone = is_gone


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal; in doubt (too many open files), it has."""
    try:
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.ENOENT, errno.EIO, errno.ENODEV)
    return True
