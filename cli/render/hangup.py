"""A terminal that is closed can't be read any more, a moment before SIGHUP comes."""

from __future__ import annotations

import errno
import termios

HANGS_UP_WITHIN = 2.0
"""Seconds after which SIGHUP has come from a terminal that was closed, if any comes."""


def is_closed() -> bool:
    """Whether the terminal of stdin was one and is no more."""
    try:
        termios.tcgetattr(0)
    except termios.error as error:
        return bool(error.args and error.args[0] == errno.EIO)
    return False
