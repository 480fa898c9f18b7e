"""Server process of `callboard serve` and `worker`: a root that a signal ends, a server, and lines on stderr.

SIGHUP means two things: reload, or the end of the terminal. The kernel takes a closed terminal (its window, an SSH
connection) from the session before it sends SIGHUP: `/dev/tty` can then no longer be opened. A process started without
a terminal (`setsid`, systemd) never had one to lose, and `nohup` requests that its loss is ignored.

A background process may also outlive its terminal without any signal: an exiting shell leaves it alone. `TerminalLife`
notices this by polling, because a SIGHUP that arrives hours later is not a hangup.
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

from ...actors.front.cluster.membership import ClusterOptions
from ...actors.front.server.serving import HttpServer, ListeningServer, ServeOptions
from ...actors.front.telemetry.export import exporting
from ...actors.io.secret_redaction import Redactor, secrets_of
from ...actors.io.server_log import ServerLog, install
from ...actors.runs.root import Root
from ...protocol.errors import CallboardError, ShuttingDown
from ...supervisors import Actor, End
from ...supervisors.installation import install_command
from .. import logging
from ..frame import raise_file_limit
from ..render.text import safe
from ..settings_warnings import already_printed, line_about


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
    """Serve until a signal arrives; return 0 if the server drained, else 128 plus the number of the signal.

    Args:
        cluster: options of this process's cluster membership, if any.

    Raises:
        UsageError: the address can't be bound, or would be open to everyone.
        ConfigError: the settings forbid it, or are invalid.
    """
    logging.configure()
    options = ServeOptions(host=host, port=port, read=sys.stderr.isatty(), durable=durable, cluster=cluster)
    ended = trio.run(_serve, options, ui, quiet, config_dir)
    if isinstance(ended, CallboardError):
        raise ended
    return ended


def _missing() -> str:
    return f"the page needs an extra that is not installed; run: {install_command('server')}"


@asynccontextmanager
async def serve_in_background(
    root: Root, *, by: str, keep_requests: bool = False, durable: bool | None = None
) -> AsyncIterator[tuple[ListeningServer, HttpServer]]:
    """Serve this machine on a free port while other code runs under the root.

    At the end of the block, followers of a run receive its end before the process exits. The same holds for a signal:
    the first one cancels the runs, and the rest of the tree, with the server, stops afterwards; the second stops
    everything.

    Args:
        by, keep_requests, durable: as in `ServeOptions`.

    Raises:
        ConfigError: the settings forbid it.
        ShuttingDown: a signal arrived before the server listened.
    """
    options = ServeOptions(host="127.0.0.1", port=0, read=True, keep_requests=keep_requests, grace=0.0)
    server = HttpServer(msgspec.structs.replace(options, by=by, durable=durable))
    settled = trio.Event()
    found: list[ListeningServer] = []

    def listening(served: ListeningServer) -> None:
        found.append(served)
        settled.set()

    async def body(_: Actor) -> None:
        await server.serve(root, listening)

    errors: list[BaseException] = []

    def over(end: End) -> None:
        errors.extend([end.error] if end.error is not None else [])
        # Also at a failure: otherwise the caller would wait for ever.
        settled.set()

    # link=False: an error of the server is raised here, by the caller's `async with`, and does not crash the root.
    ref = root.kernel.spawn(body, name="page", link=False)
    ref.on_end(over)
    await settled.wait()
    for error in errors:
        raise error
    if not found:
        raise ShuttingDown("callboard is stopping, and the server was not started")
    with root.kernel.draining(server.drain, server.drains_within(root.settings.api)):
        yield found[0], server
        await server.last_words()


def page_notice(served: ListeningServer, address: str) -> str:
    """Return a line with the address of the page, or with what to install for it."""
    return f"the page: {address}" if served.http else _missing()


def print_page(served: ListeningServer, run: str, note: Callable[[str], None], *, quiet: bool) -> None:
    """Print the address of the run's page, or what to install for it."""
    if quiet:
        sys.stderr.write(f"{served.page_of_run(run) if served.http else f'callboard: {_missing()}'}\n")
        sys.stderr.flush()
    else:
        note(page_notice(served, served.page_of_run(run)))


async def _serve(options: ServeOptions, ui: bool, quiet: bool, config_dir: str | None, /) -> CallboardError | int:
    server = HttpServer(options)
    # Before the root, which handles SIGHUP itself: nohup is recognised by the ignored signal that was inherited.
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
            terminal.let_go()  # the terminal was closed; if this process belongs to it, SIGHUP will end it

    def drain() -> None:
        if terminal.is_over():
            terminal.let_go()
        count = server.under_way()
        runs = f"; {count} run{'' if count == 1 else 's'} under way may end first" if count else ""
        say(f"stopping{runs}" + (" (a second signal cancels them)" if count else ""))
        server.drain()

    raise_file_limit()
    root = Root(
        config_dir=config_dir,
        signals=True,
        wait_for_front_end=True,
        keep_servers=True,
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
            # Returned: an exception that leaves the root's block arrives wrapped in a group.
            return error
        finally:
            if written is not None:
                written.close()
        # A server that ends because its terminal was closed has drained too: 0, not 129.
        if server.drained or root.kernel.signal is None:
            return 0
        return 128 + root.kernel.signal
    raise AssertionError("unreachable: the root swallows no errors")


def _say_where(served: ListeningServer, say: Callable[[str], None], *, ui: bool) -> None:
    gc.freeze()  # otherwise the garbage collector occasionally scans all modules, which takes 50 ms
    say(f"serving at {served.url}" + ("" if served.http else " (websocket only, without HTTP and the page)"))
    if not served.http and sys.stderr.isatty():
        say(_missing())
    # The address contains the token, which must not get into a log unless --ui asks for it.
    if served.http and (ui or sys.stderr.isatty()):
        say(f"the page: {served.page}")
    if sys.stderr.isatty():
        say("from other terminals: callboard ps, top, attach, answer, stop")
        say("Ctrl-C here ends the server")


def _log_of(root: Root) -> ServerLog | None:
    """Install and return the server's log; None if `CALLBOARD_LOG` configures a log for people.

    A terminal gets only warnings, not each request: the page's address must not scroll away.
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
"""Seconds between two checks. A terminal missing at both was outlived: a hangup's SIGHUP arrives at once."""


@final
class TerminalLife:
    """Distinguishes a closed terminal from a reload; create it before the program handles SIGHUP itself."""

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self._bound = not ignored and _has_terminal()
        self._streams = [number for number in (0, 1, 2) if _is_terminal(number)]

    def is_over(self) -> bool:
        """True if a SIGHUP that arrives now is due to the end of the terminal."""
        return self._bound and not _has_terminal()

    def let_go(self) -> None:
        """Redirect streams of a closed terminal to /dev/null, where writes do not fail."""
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for number in self._streams:
            os.dup2(nowhere, number)
        os.close(nowhere)

    async def watch(self) -> None:
        """Wait until the terminal has been outlived, then detach from it."""
        was_gone = False
        while self._bound:
            await trio.sleep(LOOK_EVERY)
            is_gone = self.is_over()
            if is_gone and was_gone:
                self._bound = False
                self.let_go()
            was_gone = is_gone


def _is_terminal(stream: int) -> bool:
    """True if the stream is a terminal, or was one until it was closed."""
    try:
        termios.tcgetattr(stream)
    except termios.error as error:
        # EIO: a terminal that was hung up. ENOTTY: no terminal.
        return bool(error.args[0] == errno.EIO)
    return True


def _has_terminal() -> bool:
    """True if this process has a controlling terminal, or if that can't be determined (too many open files)."""
    try:
        # O_NOCTTY: a check must not acquire a controlling terminal. O_NONBLOCK: opening a serial line waits for its
        # carrier.
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        # ENXIO: no controlling terminal. ENOENT: a container without this device. EIO, ENODEV: the terminal is gone.
        return error.errno not in (errno.ENXIO, errno.ENOENT, errno.EIO, errno.ENODEV)
    return True
