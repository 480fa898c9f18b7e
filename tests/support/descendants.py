"""Processes below us."""

from __future__ import annotations

import contextlib

import psutil

from callboard.supervisors import Root

HELPERS = ("guardian", "reaper")
"""Names of the processes that start and end all others."""


def name_of(process: psutil.Process) -> str:
    """Return the name of a process; "" if it is a zombie or has ended as we looked."""
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else str(process.name())
    except psutil.Error:
        return ""


def is_alive(process: psutil.Process | int) -> bool:
    """Return True if a process, or the one of a pid, has not ended.

    A zombie has ended: its parent, which may be this process (it adopts orphans), has not read its status yet. A
    process may end between two looks at it, so neither `pid_exists` nor `is_running` protects a later `status()`.
    """
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def living(root: Root) -> set[psutil.Process]:
    """Our children and theirs that live, but for the guardian of `root` and its reapers; zombies are dead.

    Whoever looks takes what was there before away: other tests in our process may have a browser open.
    """
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ended as we looked
            # The guardian by its number: a process has no command line yet as it is being executed.
            is_helper = process.pid == root.processes.link.pid or process.name() in HELPERS
            if process.status() != psutil.STATUS_ZOMBIE and not is_helper:
                found.add(process)
    return found
