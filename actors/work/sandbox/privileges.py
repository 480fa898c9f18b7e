"""What a thread gives up before it starts a process: gaining privileges, and those of root that reach beyond files.

A process of root keeps what it needs for files of other users (as in a container), and no more: with the rest it could
mount, load modules, look into other processes or change the network.
"""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from pathlib import Path

PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, CLEAR_ALL = 47, 4

KEPT = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""Capabilities that root keeps, with their numbers."""

_VERSION_3 = 0x20080522


def gain_none() -> None:
    """Never gain any again, by setuid programs or others, for this thread and what it starts.

    Raises:
        OSError: the kernel refuses that.
    """
    _checked(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def give_up() -> None:
    """Give up what there is, too.

    Raises:
        OSError: the kernel refuses that.
    """
    gain_none()
    libc = ctypes.CDLL(None, use_errno=True)
    had = _permitted()
    if had:
        for capability in range(_last() + 1):
            if capability not in KEPT.values():
                libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused without SETPCAP, where `capset` is enough
        libc.prctl(PR_CAP_AMBIENT, CLEAR_ALL, 0, 0, 0)
        kept = had & sum(1 << number for number in KEPT.values())
        data = struct.pack("=6I", kept, kept, 0, 0, 0, 0)
        header = struct.pack("=Ii", _VERSION_3, 0)
        _checked(libc.capset(ctypes.create_string_buffer(header), ctypes.create_string_buffer(data)))


def _permitted() -> int:
    """The capabilities of this thread, as bits."""
    for line in Path("/proc/thread-self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            return int(line.split()[1], 16)
    return 0


@cache
def _last() -> int:
    """The highest number that the kernel has."""
    try:
        return int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    except OSError:
        return 40


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
