"""The frame around whatever runs: a root that owns the signals, progress on stderr, prompts at the terminal.

`run`, `ask` and `tools call` work inside of it. None of what hangs on it can hold the work up. `act` does one thing by
hand, outside of a run: in an actor under a root, whose events feed the progress display.
"""

from __future__ import annotations

import gc
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click
import trio

from ..protocol.errors import CallboardError, ShuttingDown
from . import logging
from .render.progress import Progress
from .render.text import redrawable

if TYPE_CHECKING:
    from .. import Root
    from ..actors.work.models.recorder import Recorder
    from ..supervisors import Actor, End

T = TypeVar("T")

_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
FILES = 65_536
"""Files that we may have open, where the user's hard limit allows it: the usual 1,024 is a hundred tools at work."""

_SHOW_CURSOR = b"\x1b[?25h"
_CLEAR_LINE = b"\r\x1b[2K"


def play(body: Callable[[Root], Awaitable[T]], progress: Progress, **options: Any) -> T:
    """What `body` returns, given a root; `options` are those of `open_frame`.

    Raises:
        CallboardError: what `body` raises, not wrapped in a group.
        click.exceptions.Exit: a signal has ended the root, and `body` with it.
    """

    roots: list[Root] = []
    ends: list[list[T] | CallboardError] = []

    async def framed() -> None:
        async with open_frame(progress, **options) as root:
            roots.append(root)
            try:
                ends.append([await body(root)])
            except CallboardError as error:
                ends.append(error)

    logging.configure()
    trio.run(framed)
    if not ends:  # the body was still waiting when the time of the root's stop was up
        raise click.exceptions.Exit(exit_code_of(roots[0]))
    end = ends[0]
    if isinstance(end, CallboardError):
        raise end
    return end[0]


def keeping(
    root: Root, wanted: bool, note: Callable[[str], None], *, logged: bool = True
) -> AbstractAsyncContextManager[Callable[[str], Recorder] | None]:
    """Keeps the runs of the block, with what their models see and say, if that is wanted; see `kept_run.keep_runs`."""
    if not wanted:
        return nullcontext()
    from ..actors.front.control.kept_run import keep_runs

    return keep_runs(root, note, logged=logged)


def exit_code_of(root: Root) -> int:
    """The exit code of a server that has ended: 0, or that of the signal that has ended it."""
    return 0 if root.kernel.signal is None else 128 + root.kernel.signal


@asynccontextmanager
async def open_frame(
    progress: Progress,
    *,
    config_dir: str | None,
    person: bool,
    serving: bool = False,
    traced: bool = True,
    dry_run: bool = False,
    own_screen: bool = False,
) -> AsyncIterator[Root]:
    """The root to work under.

    Args:
        person: whether the terminal can ask its user.
        serving: whether we are here for long.
        own_screen: whether questions and signals are shown by a screen that the caller has.
        dry_run: whether no request may go to a model.
        traced: whether there may be runs; OpenTelemetry traces them if the environment says so.

    The block should let no error of ours out: it would arrive wrapped in a group.
    """
    from .. import Root  # heavy, and not needed to know whether there is a terminal
    from ..actors.front.telemetry.export import exporting
    from .vault_opening import asking, has_terminal

    raise_file_limit()
    root = Root(
        config_dir=config_dir,
        signals=True,
        on_signal=None if own_screen else _tell_signal,
        serving=serving,
        keeps_usage=True,
        dry_run=dry_run,
        ask_passphrase=asking(progress.aside) if (person or own_screen) and has_terminal() else None,
    )
    async with exporting(root, os.environ if traced else {}), root, trio.open_nursery() as nursery:
        with progress, ExitStack() as stack:
            stack.callback(nursery.cancel_scope.cancel)
            nursery.start_soon(progress.animate)
            if person:
                from .render.prompt import TerminalPrompts

                await nursery.start(TerminalPrompts(root.questions, progress.aside).serve)
            if serving:
                gc.freeze()  # else Python's collector goes through all modules now and then, which takes 50 ms
            yield root


def person_at_terminal(*, no_input: bool) -> bool:
    """Whether questions are possible: stdin and stderr are terminals, and no flag forbids it."""
    return not no_input and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def raise_file_limit() -> None:
    """Use what the hard limit allows, up to `FILES`.

    Subprocesses inherit it. To most it makes no difference; those that go through all numbers up to the limit in order
    to close them are why there is an upper bound.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # the kernel knows better; then it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _tell_signal(number: int, count: int) -> None:
    if count == 1:
        name = _SIGNALS.get(signal.Signals(number), f"signal {number}")
        with suppress(OSError):  # the terminal that is closed, which is what SIGHUP tells
            if redrawable(sys.stderr):
                # Past rich, which drops it; after a third signal it is too late. A bar may stand where we write.
                os.write(2, _CLEAR_LINE + _SHOW_CURSOR)
            sys.stderr.write(f"callboard: {name}, stopping\n")
            sys.stderr.flush()


_INTERRUPTED = 130


def act(
    body: Callable[[Actor, Root], Awaitable[T]],
    *,
    config_dir: str | None,
    progress: Progress | None = None,
    person: bool = False,
    traced: bool = False,
) -> T:
    """What `body` returns, played to its end by an actor of its own.

    Args:
        config_dir: see `directories.config_dir`.
        progress: gets its events, if any.
        person: whether the terminal can ask its user.
        traced: whether it has runs (see `open_frame`).

    Raises:
        CallboardError: it failed.
        click.exceptions.Exit: it was interrupted.
    """
    shown = progress or Progress()

    async def by_actor(root: Root) -> tuple[End, int | None]:
        stream = root.bus.open(f"call-{secrets.token_hex(4)}")
        try:
            with stream.listen(shown.on_event):
                end = await root.kernel.spawn(body, root, name=stream.run, stream=stream, link=False).wait()
        finally:
            root.bus.close(stream)
        return end, root.kernel.signal

    end, number = play(by_actor, shown, config_dir=config_dir, person=person, traced=traced)
    if end.reason in ("cancelled", "stopped") or isinstance(end.error, ShuttingDown):
        raise click.exceptions.Exit(_INTERRUPTED if number is None else 128 + number)
    if end.error is not None:
        raise end.error if isinstance(end.error, CallboardError) else CallboardError(f"crashed: {end.error!r}")
    value: T = end.value
    return value
