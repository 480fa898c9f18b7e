"""Runs `callboard serve`: a root that waits for people, a server under it, a few lines on stderr.

A closed terminal (its window, an SSH connection) sends SIGHUP to what runs in it, and has been taken from the session
by then: `/dev/tty` can't be opened any more. What was started without a terminal (`setsid`, systemd) never had one to
lose, and `nohup` says that its loss is to be ignored.

A program in the background may also outlive its terminal without any signal: a shell that exits leaves it alone. That
is noticed by looking now and then, since a SIGHUP that comes hours later is no hangup.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import final

import msgspec
import trio

from .. import Root
from ..actors.front.cluster.seat import ClusterOptions
from ..actors.front.server.serving import Served, ServeOptions, Server
from ..actors.front.telemetry.export import exporting
from ..actors.io.redact import Redactor, secrets_of
from ..actors.io.server_log import ServerLog, install
from ..protocol.errors import CallboardError, ShuttingDown
from ..supervisors import Actor, End
from . import logging
from .frame import raise_file_limit
from .render.text import safe
from .settings_warnings import already_printed, line_about


def serve_until_signal(
    *,
    host: str | None,
    port: int | None,
    ui: bool,
    quiet: bool,
    durable: bool | None,
    config_dir: str | None,
    cluster: ClusterOptions | None = None,
) -> int:
    """Serves until a signal comes; returns the exit code.

    Args:
        cluster: the place of this process in a cluster, if it has one.

    Raises:
        UsageError: the address can't be listened on, or would be open to all.
        ConfigError: the settings forbid it, or are wrong.
    """
    logging.configure()
    options = ServeOptions(host=host, port=port, read=sys.stderr.isatty(), durable=durable, cluster=cluster)
    ended = trio.run(_serve, options, ui, quiet, config_dir)
    if isinstance(ended, CallboardError):
        raise ended
    return ended


MISSING = "the page needs an extra that is not installed: pip install 'callboard[server]'"


@asynccontextmanager
async def serve_beside(
    root: Root, *, by: str, keep_requests: bool = False, durable: bool | None = None
) -> AsyncIterator[tuple[Served, Server]]:
    """Serve this machine on a free port while something else goes on under the root.

    At the end of the block followers of a run get its end, before the process exits. The same holds for a signal: the
    first one cancels what runs, and the rest of the tree, with the server, stops after that; the second stops all.

    Args:
        by, keep_requests, durable: as in `ServeOptions`.

    Raises:
        ConfigError: the settings forbid it.
        ShuttingDown: a signal came first.
    """
    options = ServeOptions(host="127.0.0.1", port=0, read=True, keep_requests=keep_requests, grace=0.0)
    server = Server(msgspec.structs.replace(options, by=by, durable=durable))
    settled = trio.Event()
    found: list[Served] = []

    def listening(served: Served) -> None:
        found.append(served)
        settled.set()

    async def body(_: Actor) -> None:
        await server.serve(root, listening)

    errors: list[BaseException] = []

    def over(end: End) -> None:
        errors.extend([end.error] if end.error is not None else [])
        settled.set()

    ref = root.kernel.spawn(body, name="page", link=False)
    ref.on_end(over)
    await settled.wait()
    for error in errors:
        raise error
    if not found:
        raise ShuttingDown("callboard is stopping, and no server was begun")
    with root.kernel.draining(server.drain, server.drains_within(root.settings.api)):
        yield found[0], server
        await server.last_words()


def told_of_page(served: Served, address: str) -> str:
    """That the page is at this address, or what to install so that there is one."""
    return f"the page: {address}" if served.http else MISSING


def tell_page(served: Served, run: str, note: Callable[[str], None], *, quiet: bool) -> None:
    """Where the run can be seen, or what to install so that it can."""
    if quiet:
        sys.stderr.write(f"{served.page_of_run(run) if served.http else f'callboard: {MISSING}'}\n")
        sys.stderr.flush()
    else:
        note(told_of_page(served, served.page_of_run(run)))


async def _serve(options: ServeOptions, ui: bool, quiet: bool, config_dir: str | None, /) -> CallboardError | int:
    server = Server(options)
    terminal = TerminalLife()

    def say(text: str) -> None:
        if quiet:
            return
        try:
            sys.stderr.write(f"callboard: {safe(text)}\n")
            sys.stderr.flush()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            terminal.let_go()  # it was closed; if we belong to it, its SIGHUP is what ends us

    def drain() -> None:
        if terminal.is_over():
            terminal.let_go()
        count = server.under_way()
        runs = f"; {count} run{'' if count == 1 else 's'} under way may end first" if count else ""
        say(f"stopping{runs}" + (" (again: cancels them)" if count else ""))
        server.drain()

    raise_file_limit()
    root = Root(
        config_dir=config_dir,
        signals=True,
        patient=True,
        serving=True,
        keeps_usage=True,
        on_drain=drain,
        on_hangup=server.hang_up,
        hangup_ends=terminal.is_over,
    )
    root.kernel.drain_within = server.drains_within(root.settings.api)
    already_printed()
    if root.problems:
        say(line_about(root.problems))
    async with exporting(root, os.environ), root:
        written = _log_of(root)
        try:
            if root.settings.mcp_server_support:
                root.kernel.spawn(lambda _: root.mcp.warm(), name="warm", link=False)
            root.kernel.spawn(lambda _: terminal.watch(), name="terminal", link=False)
            await server.serve(root, lambda served: _say_where(served, say, ui=ui))
        except CallboardError as error:
            return error
        finally:
            if written is not None:
                written.close()
        if server.drained or root.kernel.signal is None:
            return 0
        return 128 + root.kernel.signal
    raise AssertionError("unreachable: the root swallows no errors")


def _say_where(served: Served, say: Callable[[str], None], *, ui: bool) -> None:
    gc.freeze()  # else Python's collector goes through all modules now and then, which takes 50 ms
    say(f"serving at {served.url}" + ("" if served.http else " (the websocket only)"))
    if not served.http and sys.stderr.isatty():
        say(MISSING)
    if served.http and (ui or sys.stderr.isatty()):
        say(f"the page: {served.page}")
    if sys.stderr.isatty():
        say("from other terminals: callboard ps, top, attach, answer, stop")
        say("Ctrl-C here ends the server")


def _log_of(root: Root) -> ServerLog | None:
    """The log as a server writes it; one that `CALLBOARD_LOG` asks for stays as it is, for people.

    A terminal shows warnings, and not each request: the page's address must not scroll away.
    """
    if logging.wanted_by(os.environ).text:
        return None
    settings, person = root.settings.api, sys.stderr.isatty()
    redactor = Redactor(secrets_of(root.settings, os.environ))
    format = "text" if person else settings.log_format
    written = install(sys.stderr, format=format, level=settings.log_level, redactor=redactor)
    if person and settings.log_level != "debug":
        written.setLevel("WARNING")
    return written


TERMINAL = "/dev/tty"
LOOK_EVERY = 5.0
"""Seconds between two looks. A terminal that is gone at both was outlived: the SIGHUP of its end comes at once."""


@final
class TerminalLife:
    """See the module. Made when the program starts, before it handles SIGHUP itself."""

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self._bound = not ignored and _has_terminal()
        self._streams = [number for number in (0, 1, 2) if _is_terminal(number)]

    def is_over(self) -> bool:
        """Whether a SIGHUP that comes now is that of the terminal's end."""
        return self._bound and not _has_terminal()

    def let_go(self) -> None:
        """The terminal is gone: what is still written to it goes nowhere, instead of being an error each time."""
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for number in self._streams:
            os.dup2(nowhere, number)
        os.close(nowhere)

    async def watch(self) -> None:
        """Notice that the terminal has been outlived, until that is so."""
        was_gone = False
        while self._bound:
            await trio.sleep(LOOK_EVERY)
            is_gone = self.is_over()
            if is_gone and was_gone:
                self._bound = False
                self.let_go()
            was_gone = is_gone


def _is_terminal(stream: int) -> bool:
    """Whether it is one, or was one until it was closed."""
    try:
        termios.tcgetattr(stream)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return True


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal; in doubt (too many open files), it has."""
    try:
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.ENOENT, errno.EIO, errno.ENODEV)
    return True
