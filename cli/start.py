"""Entry point of the program: signals before a root owns them, closed standard streams, then `main`.

By default Python turns Ctrl-C into an exception at whatever line runs. During imports that results in a traceback, or
in a warning that the exception was ignored, and the process continues. Before a root owns the signals, and after it has
released them, nothing needs a slow cleanup. So a signal ends the process at once and silently, with the exit code that
it also has later. Code that waits for long without a root restores the exception for that time (`stdin`).

A closed standard stream (`<&-`, `>&-`) becomes /dev/null here, before anything is imported: the next opened file would
get its number, and then be written to as if it were the terminal.

This module imports next to nothing: Ctrl-C can still break imports before its first line.
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
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a background job
            signal.signal(number, _end)
    _open_closed_streams()
    # A run creates hundreds of thousands of long-lived objects. With 700, the default threshold, garbage collection
    # takes a quarter of the CPU of 1,000 agents. With this one it does not run during imports and one agent's answer (a
    # twentieth of that run's CPU), and the process uses up to 14 MB more.
    gc.set_threshold(100_000, 20, 20)
    # httpx imports its command line, and with it syntax highlighting of rich and pygments, if these are installed. None
    # makes that import fail, which httpx tolerates.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    from .main import main as program

    try:
        program()
    except SystemExit as ended:
        _leave(ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1)


def _leave(code: int) -> NoReturn:
    """End the process as Python does, but without deallocating every module, which frees a million objects one by one.

    Non-daemon threads are awaited, and exit handlers (coverage.py, logging) run.
    """
    import threading

    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - unknown to typeshed
    atexit._run_exitfuncs()  # noqa: SLF001 - the only way, as in multiprocessing
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # `main` has reported it, or the stream is closed
    os._exit(code)


def _end(number: int, _frame: object) -> NoReturn:
    os._exit(128 + number)


def _open_closed_streams() -> None:
    """Open /dev/null in place of each closed standard stream; Python has set such a stream to None."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is `fd`
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "r" if fd == 0 else "w", closefd=False))  # noqa: SIM115 - lives as long as we
