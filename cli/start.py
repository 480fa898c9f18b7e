"""Where the program starts: what a signal does before there is anything to stop, then everything else.

Python's own answer to Ctrl-C is an exception at whatever line runs, and while modules are being imported that is a
traceback, or a warning that the exception was ignored and no end at all. Until a root owns the signals, and after it
has given them back, there is nothing to stop that takes time. So a signal ends the process at once and silently, by the
exit code that it has later, too. What waits for long without a root says so for that time (`stdin`).

A standard stream that is closed (`<&-`, `>&-`) becomes /dev/null here, before anything is imported: the next file that
is opened would take its number, and then be written to as if it were the terminal.

This module imports next to nothing: what is imported before its first line is what Ctrl-C can still break.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from typing import NoReturn

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> NoReturn:
    """Entry point of the console script; always ends the process."""
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a job in the background
            signal.signal(number, _end)
    _open_closed_streams()
    # A run makes hundreds of thousands of objects that live long. With 700, the default, the collector looks at them so
    # often that it takes a quarter of the CPU of 1,000 agents; this way 7 MB more of memory.
    gc.set_threshold(50_000, 20, 20)
    # httpx imports its command line, and with it rich's and pygments' syntax highlighting, where these are installed.
    sys.modules["httpx._main"] = None  # type: ignore[assignment] # which is how one says: there is none
    from .main import main as program

    try:
        program()
    except SystemExit as ended:
        _leave(ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1)


def _leave(code: int) -> NoReturn:
    """End the process as Python does, but without taking every module apart, which frees a million objects one by one.

    Threads that are to be waited for, and what others registered for the exit (coverage.py, logging), have their turn.
    """
    import threading

    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - as typeshed has it, there is none
    atexit._run_exitfuncs()  # noqa: SLF001 - the only way, which multiprocessing takes as well
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # `main` has told it, if there is somebody to tell; or it is closed
    os._exit(code)


def _end(number: int, _frame: object) -> NoReturn:
    os._exit(128 + number)


def _open_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed; Python has set such a stream to None."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is `fd`
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "r" if fd == 0 else "w", closefd=False))  # noqa: SIM115 - lives as long as we
