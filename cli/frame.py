"""Root of a command: handles the signals, and connects progress on stderr and questions at the terminal.

`frame.play` executes a function under this root. `act` executes one task outside of a run, in an actor under a root
whose events feed the progress display. `choose_display` selects that display. A slow display does not block a run.
"""

from __future__ import annotations

import gc
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
import trio

from ..protocol.errors import CallboardError, ShuttingDown
from . import logging
from .render.progress import PlainLines, ProgressDisplay
from .render.text import redrawable

if TYPE_CHECKING:
    from ..actors.runs.root import Root
    from ..actors.work.models.recorder import Recorder
    from ..supervisors import Actor, End

T = TypeVar("T")

_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
FILES = 65_536
"""Open files that the process requests, if the user's hard limit allows it: the usual 1,024 suffice for a hundred
tools.
"""

DEMO = "CALLBOARD_DEMO"
"""Environment variable that `callboard demo` sets for its processes: the path of its report file (see `DemoDisplay`).
"""

_SHOW_CURSOR = b"\x1b[?25h"
_CLEAR_LINE = b"\r\x1b[2K"


def choose_display(
    stream: TextIO,
    *,
    quiet: bool,
    verbose: bool,
    prompting: bool = False,
    shared: bool = False,
    by_hand: bool = False,
) -> ProgressDisplay:
    """Return the progress display for the stream and the flags; `prompting` and `by_hand` as for `Narrator`.

    `shared`: other output goes to the same screen meanwhile, which a redrawn tree would erase.
    """
    if quiet:
        return ProgressDisplay()
    if (file := os.environ.get(DEMO)) is not None:
        from .render.story import DemoDisplay

        return DemoDisplay(stream, Path(file))
    if redrawable(stream) and not shared:
        from .render.tree import LiveTree

        return LiveTree(stream, verbose=verbose, prompting=prompting, by_hand=by_hand)
    return PlainLines(stream, verbose=verbose, prompting=prompting, by_hand=by_hand)


def play(body: Callable[[Root], Awaitable[T]], progress: ProgressDisplay, **options: Any) -> T:
    """Run `body` with a root and return its result; `options` are passed to `open_frame`.

    Raises:
        CallboardError: raised by `body`, not wrapped in a group.
        click.exceptions.Exit: a signal ended the root, and `body` with it.
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
    if not ends:  # the body was still waiting when the root's stop timed out
        raise click.exceptions.Exit(exit_code_of(roots[0]))
    end = ends[0]
    if isinstance(end, CallboardError):
        raise end
    return end[0]


def keeping(
    root: Root, wanted: bool, note: Callable[[str], None], *, logged: bool = True
) -> AbstractAsyncContextManager[Callable[[str], Recorder] | None]:
    """Record the runs of the block, with requests and replies of their models, if `wanted`; see
    `running.keep_runs`.
    """
    if not wanted:
        return nullcontext()
    from ..actors.front.control.runs.running import keep_runs

    return keep_runs(root, note, logged=logged)


def exit_code_of(root: Root) -> int:
    """Return the exit code of an ended server: 0, or that of the signal that ended it."""
    return 0 if root.kernel.signal is None else 128 + root.kernel.signal


@asynccontextmanager
async def open_frame(
    progress: ProgressDisplay,
    *,
    config_dir: str | None,
    person: bool,
    serving: bool = False,
    traced: bool = True,
    dry_run: bool = False,
    own_screen: bool = False,
) -> AsyncIterator[Root]:
    """Open the root of a command.

    Args:
        person: True if the terminal can ask its user.
        serving: True for a long-running process.
        own_screen: True if the caller's screen shows questions and signals.
        dry_run: True if no request may go to a model.
        traced: True if there may be runs; OpenTelemetry traces them if the environment enables it.

    The block should handle `CallboardError` itself: an exception that leaves it arrives wrapped in a group.
    """
    from ..actors.front.telemetry.export import exporting
    from ..actors.runs.root import Root  # heavy, and not needed to find out whether there is a terminal
    from .vault_passphrase import asking, has_terminal

    raise_file_limit()
    root = Root(
        config_dir=config_dir,
        signals=True,
        on_signal=None if own_screen else _print_signal,
        keep_servers=serving,
        keeps_usage=True,
        dry_run=dry_run,
        ask_passphrase=asking(progress.aside) if (person or own_screen) and has_terminal() else None,
    )
    async with exporting(root, os.environ if traced else {}), root, trio.open_nursery() as nursery:
        with progress, ExitStack() as stack:
            stack.callback(nursery.cancel_scope.cancel)
            nursery.start_soon(progress.animate)
            if person:
                from .render.dialog import TerminalPrompts

                await nursery.start(TerminalPrompts(root.kernel.questions, progress.aside).serve)
            if serving:
                gc.freeze()  # otherwise the garbage collector occasionally scans all modules, which takes 50 ms
            yield root


def person_at_terminal(*, no_input: bool) -> bool:
    """Return True if questions are possible: stdin and stderr are terminals, and no flag forbids it."""
    return not no_input and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit, up to `FILES`.

    Subprocesses inherit the limit. Most do not notice; some close all descriptors up to the limit one by one, so there
    is an upper bound.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # the kernel refuses: the limit remains
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _print_signal(number: int, count: int) -> None:
    if count == 1:
        name = _SIGNALS.get(signal.Signals(number), f"signal {number}")
        with suppress(OSError):  # the terminal is closed, which is the reason for SIGHUP
            if redrawable(sys.stderr):
                # Bypass rich, which drops it; after a third signal it is too late. The cursor may be on a progress bar.
                os.write(2, _CLEAR_LINE + _SHOW_CURSOR)
            sys.stderr.write(f"callboard: {name}, stopping\n")
            sys.stderr.flush()


_INTERRUPTED = 130


def act(
    body: Callable[[Actor, Root], Awaitable[T]],
    *,
    config_dir: str | None,
    progress: ProgressDisplay | None = None,
    person: bool = False,
    traced: bool = False,
) -> T:
    """Run `body` to its end in an actor of its own and return its result.

    Args:
        config_dir: see `directories.config_dir`.
        progress: display for its events, if any.
        person: True if the terminal can ask its user.
        traced: True if it has runs (see `open_frame`).
    Raises:
        CallboardError: `body` failed.
        click.exceptions.Exit: a signal interrupted it.
    """
    shown = progress or ProgressDisplay()

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
