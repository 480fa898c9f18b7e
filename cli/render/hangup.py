"""Detection of a closed terminal: reading fails with EIO a moment before SIGHUP arrives."""

from __future__ import annotations

import errno
import termios

HANGS_UP_WITHIN = 2.0
"""Seconds within which SIGHUP arrives from a closed terminal, if at all."""


def is_closed() -> bool:
    """Return True if stdin was a terminal that has been closed."""
    try:
        termios.tcgetattr(0)
    except termios.error as error:
        return bool(error.args and error.args[0] == errno.EIO)
    return False
