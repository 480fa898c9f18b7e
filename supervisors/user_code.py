"""Containment of exceptions of user code: tools, hooks, callbacks, and plugins that run in this process.

The kernel treats a `BaseException` outside of `Exception` as the end of the whole root: Ctrl-C must end every run. User
code raises such exceptions for reasons of its own. `argparse` raises `SystemExit` for a wrong argument, and a library
may define a `BaseException`. One bad call must not cancel other runs, so these become `UserCodeError` here.

Two kinds have to pass unchanged, alone and inside exception groups:

- `trio.Cancelled`, which belongs to a cancel scope further up.
- `KeyboardInterrupt` of a real Ctrl-C. trio's SIGINT handler raises it in whatever runs, which may be an async tool.
  The class alone does not distinguish it from one that the code itself raised. The traceback does: a signal handler
  runs as the innermost call, so the code object of the installed handler, or of trio, is its last frame.
  `signal.default_int_handler` is written in C and leaves no frame. While it is installed, a `KeyboardInterrupt` in
  the main thread counts as real.

`GeneratorExit` has one more origin: Python throws it into a coroutine that is closed. trio closes none of its tasks'
coroutines while they run, so outside of a trio task it passes.

An `Exception` is left alone unless its text can't be read: callers report it as it is.
"""

from __future__ import annotations

import os
import signal
from types import TracebackType
from typing import final

import trio

_TRIO = os.path.join(os.path.dirname(trio.__file__), "_core", "")  # noqa: PTH118, PTH120 - compared with co_filename


class UserCodeError(Exception):
    """Failure of user code that raised something other than a readable `Exception`; `__cause__` is that exception."""


@final
class UserCode:
    """Context manager that contains exceptions of the block; it holds no state, so one instance serves all callers.

    Raises:
        UserCodeError: the block raised a `BaseException` of its own.
        BaseExceptionGroup: as the block raised it, with such members replaced.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        contained = _contained(error)
        if contained is not error:
            raise contained from error


user_code = UserCode()


def failure_of(error: BaseException) -> Exception:
    """Return the error of user code as an `Exception`: itself, or a `UserCodeError` for another `BaseException`.

    Raises:
        BaseException: the error holds a cancellation or a real Ctrl-C, which must not be caught.
    """
    contained = _contained(error)
    if isinstance(contained, Exception):
        return contained
    raise contained


def _contained(error: BaseException) -> BaseException:
    """Return the error itself if nothing in it has to be replaced."""
    if isinstance(error, BaseExceptionGroup):
        members = [_contained(each) for each in error.exceptions]
        unchanged = all(new is old for new, old in zip(members, error.exceptions, strict=True))
        if unchanged and (isinstance(error, Exception) or not all(isinstance(each, Exception) for each in members)):
            return error
        # Not `derive`: a group's class may be the user's own, with a method that raises once more.
        return BaseExceptionGroup(error.message, members).with_traceback(error.__traceback__)
    if _passes(error):
        return error
    contained = UserCodeError(_text(error))
    contained.__cause__ = error
    return contained


def _passes(error: BaseException) -> bool:
    if isinstance(error, trio.Cancelled):
        return True
    if isinstance(error, Exception):
        return _is_readable(error)
    if isinstance(error, GeneratorExit):
        return not trio.lowlevel.in_trio_task()
    return isinstance(error, KeyboardInterrupt) and _is_ctrl_c(error)


def _is_ctrl_c(error: BaseException) -> bool:
    handler = signal.getsignal(signal.SIGINT)
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    if handler is signal.default_int_handler:
        return _in_main_thread()
    handler = getattr(handler, "func", handler)  # asyncio.run installs a partial
    own = getattr(getattr(handler, "__func__", handler), "__code__", None)
    return code is own or code.co_filename.startswith(_TRIO)


def _in_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def _is_readable(error: Exception) -> bool:
    try:
        str(error)
    except BaseException:  # noqa: BLE001 - a `__str__` of the user's, which would raise where the error is reported
        return False
    return True


def _text(error: BaseException) -> str:
    """`SystemExit: 2`. The class may be the user's own, with a `__str__` that raises."""
    name = type(error).__name__
    try:
        text = str(error).strip()
    except BaseException:  # noqa: BLE001 - user code once more; its class is all that can be reported
        return name
    return f"{name}: {text}" if text else name
