"""Reconnecting client: subscriptions resume at their last position.

If the process of a local server has ended, the client does not wait for it. Any other server is retried for `PATIENCE`
seconds, which covers a restart and an unstable network.

`with_client` runs a command: it provides the connection, handles signals, and unwraps errors. A signal ends the
command, never the run that the command watches. The first signal ends it at once: nothing here needs a slow cleanup.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click
import msgspec
import trio

from ...protocol.control import own
from ...protocol.control.things import RunInfo
from ...protocol.decoding import decode_json
from ...protocol.errors import CallboardError, NoServer, NotFound, Saturated, ServerLost, UsageError
from ..render.text import safe
from .connection import ControlConnection, NotificationFeed, open_connection
from .servers import ControlServer, Where, find_server

T = TypeVar("T")

PATIENCE = 30.0
_LOOKS = ("get", "list", "tree", "inspect", "events", "graph", "info", "status")
"""Last words of the read-only methods."""

FIRST_WAIT, LONGEST_WAIT = 0.1, 2.0


class ControlClient:
    """Client for commands, created by `open_client`.

    Attributes:
        server: server of the connection.
        tell: callback for a line when the connection is lost, and when it is restored.
    """

    def __init__(self, server: ControlServer, nursery: trio.Nursery) -> None:
        self.server = server
        self.tell: Callable[[str], None] = lambda _: None
        self._nursery = nursery
        self._lock = trio.Lock()
        self._connection: ControlConnection | None = None

    async def ask(self, method: str, type: type[T], /, **params: Any) -> T:
        """Send a request and return its result. Read-only requests are repeated if the connection is lost meanwhile.

        Raises:
            CallboardError: the server refuses, with its error code.
            ServerLost: the server is gone, or the connection was lost and the request's effect is unknown.
        """
        while True:
            connection = await self.connected()
            try:
                return self._read(await connection.request(method, _given(params)), type)
            except ServerLost:
                if not (connection.lost and method.rpartition("/")[2] in _LOOKS):
                    raise

    async def subscribe(self, method: str, type: type[T], /, **params: Any) -> tuple[T, NotificationFeed]:
        """Subscribe; return the result and the feed of notifications. Raises as `ask` does."""
        while True:
            connection = await self.connected()
            try:
                result, feed = await connection.subscribe(method, _given(params))
                return self._read(result, type), feed
            except ServerLost:
                if not connection.lost:
                    raise

    def _read(self, result: msgspec.Raw, type: type[T]) -> T:
        try:
            return decode_json(result, type)
        except msgspec.MsgspecError as error:
            raise ServerLost(
                f"the server at {self.server.url} sent a message that this callboard can't read: {error}"
            ) from None

    async def connected(self) -> ControlConnection:
        """Return the current connection, or a new one if it was lost."""
        # One task reconnects; the others wait for the lock and use its connection.
        async with self._lock:
            if self._connection is None:
                self._connection = await open_connection(self._nursery, self.server)
            elif self._connection.lost:
                self._connection = await self._again()
            return self._connection

    async def _again(self) -> ControlConnection:
        """Reconnect.

        Raises:
            ServerLost: the server's process has ended, or it did not answer for `PATIENCE` seconds.
        """
        told, wait = False, FIRST_WAIT
        last = trio.current_time() + PATIENCE
        while True:
            if self.server.has_ended:
                raise ServerLost(f"the server at {self.server.url} has ended (process {self.server.pid})")
            try:
                connection = await open_connection(self._nursery, self.server)
            except (NoServer, ServerLost, Saturated) as error:
                if trio.current_time() + wait > last:
                    raise ServerLost(f"the server did not answer for {PATIENCE:g} s: {error}") from None
            else:
                if told:
                    self.tell(f"connected to {self.server.url} again")
                return connection
            if not told:
                told = True
                self.tell(f"the connection to {self.server.url} is lost; trying again for {PATIENCE:g} s")
            await trio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def _given(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


@asynccontextmanager
async def open_client(server: ControlServer) -> AsyncIterator[ControlClient]:
    """Yield a client that is connected to the server; the connection ends with the block.

    The block should handle `CallboardError` itself: an exception that leaves it arrives wrapped in a group.
    """
    async with trio.open_nursery() as nursery:
        client = ControlClient(server, nursery)
        try:
            yield client
        finally:
            nursery.cancel_scope.cancel()


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CommandInterrupted(click.exceptions.Exit):
    """A signal ended the command; `exit_code` is 128 plus its number."""


def with_client(where: Where, body: Callable[[ControlClient], Awaitable[T]]) -> T:
    """Run `body` with a client of the requested server and return its result.

    Raises:
        CallboardError: `body` failed, or there is no server.
        CommandInterrupted: a signal arrived.
    """
    server = find_server(where, os.environ)
    if server.others and sys.stderr.isatty():
        print_to_stderr(f"{server.others + 1} servers run here; this is the newest, {server.url} (--url names another)")

    async def connected() -> T:
        async with open_client(server) as client:
            client.tell = print_to_stderr
            await client.connected()
            return await body(client)
        raise AssertionError("unreachable: the nursery swallows no errors")

    return play(connected)


def play(body: Callable[[], Awaitable[T]]) -> T:
    """Run `body` in a trio loop of its own and return its result; raises as `with_client` does."""
    end = trio.run(_play, body)
    if isinstance(end, signal.Signals):
        raise CommandInterrupted(128 + end)
    if isinstance(end, BaseException):
        raise end
    return end[0]


async def _play(body: Callable[[], Awaitable[T]]) -> list[T] | Exception | signal.Signals:
    came: list[signal.Signals] = []
    end: list[T] = []
    # A signal that the parent ignores (nohup, a script's background job) must remain ignored.
    heard = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    try:
        with trio.open_signal_receiver(*heard) as signals:
            async with trio.open_nursery() as nursery:

                async def stop_at_signal() -> None:
                    async for number in signals:
                        came.append(signal.Signals(number))
                        nursery.cancel_scope.cancel()

                nursery.start_soon(stop_at_signal)
                end.append(await body())
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = _first(group)
        if not isinstance(error, CallboardError | OSError):
            raise
        return error
    return end or came[0]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the relevant error: tasks that fail together have failed for the same reason."""
    errors = [leaf for leaf in _leaves(group) if not isinstance(leaf, trio.Cancelled)]
    return next((leaf for leaf in errors if not isinstance(leaf, CallboardError | OSError)), errors[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def print_to_stderr(text: str) -> None:
    sys.stderr.write(f"callboard: {safe(text)}\n")
    sys.stderr.flush()


# --- runs -------------------------------------------------------------------------------------------------

_PAGE = 500


async def find_run(client: ControlClient, word: str) -> RunInfo:
    """Return the run with this id, or with an id that begins with `word`.

    Raises:
        CallboardError: no run matches (code `not_found`), or several do.
    """
    try:
        return (await client.ask("_run/get", own.OneRun, run=word)).run
    except CallboardError as error:
        if error.code != NotFound.code:
            raise
        known = await runs_of(client)
        id = matching_id(word, [info.run for info in known])
        if id is None:
            raise NotFound(_unknown(word, known)) from None
    return (await client.ask("_run/get", own.OneRun, run=id)).run


def _unknown(word: str, known: Iterable[RunInfo]) -> str:
    named = [info.run for info in known if word in (info.target, info.name, info.title)]
    hint = f"runs of that name: {', '.join(named[:5])}" if named else "to list all runs: callboard ps -a"
    return f"there is no run '{word[:60]}' ({hint})"


async def runs_of(client: ControlClient, *, status: str | None = None, most: int = 10_000) -> list[RunInfo]:
    """Return the newest runs known to the server, finished ones included, page by page."""
    found: list[RunInfo] = []
    before: str | None = None
    while len(found) < most:
        limit = min(_PAGE, most - len(found))
        page = await client.ask("_run/list", own.Runs, status=status, limit=limit, before=before)
        found += page.runs
        before = page.next
        if before is None:
            break
    return found


def beginning(word: str, ids: Iterable[str], kind: str) -> list[str]:
    """Return the id that equals `word`; otherwise all ids that begin with it, with or without the prefix `KIND-`."""
    known = list(ids)
    return [id for id in known if id == word] or [id for id in known if id.startswith((word, f"{kind}-{word}"))]


def matching_id(word: str, ids: Iterable[str], kind: str = "run") -> str | None:
    """Return the only id that begins with `word`, with or without the prefix `KIND-`; None if there is none.

    Raises:
        UsageError: several ids match.
    """
    found = beginning(word, ids, kind)
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise UsageError(f"'{word}' begins the ids of several {kind}s: {shown}")
    return found[0] if found else None
