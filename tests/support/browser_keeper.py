"""Keeps a browser for a test program, and ends it when that program ends, in whatever way.

    python -I browser_keeper.py PROFILE PROGRAM OPTION ...    its stdin is a pipe that the test program holds

A test program that is killed runs no `finally`. So this process, in a session of its own, waits until the pipe is
closed, the test program is dead (another process may hold a copy of the pipe), or the browser ends by itself. Then it
kills the browser with all its helpers and removes the profile. As their subreaper it gets every orphan of the browser,
so having no children left is the proof that none is alive.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import subprocess
import sys

import psutil

PR_SET_CHILD_SUBREAPER = 36


def main(profile: str, *argv: str) -> None:
    """Start the browser, and see it and its helpers dead."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ends = select.poll()
    ends.register(0, select.POLLHUP)
    ends.register(os.pidfd_open(os.getppid()), select.POLLIN)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    browser = subprocess.Popen(argv, start_new_session=True, **quiet)
    ends.register(os.pidfd_open(browser.pid), select.POLLIN)
    try:
        ends.poll()
    finally:
        _end_children()
        shutil.rmtree(profile, ignore_errors=True)


def _end_children() -> None:
    try:
        while True:
            for process in psutil.Process().children(recursive=True):
                process.kill()
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
