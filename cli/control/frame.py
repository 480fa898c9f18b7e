"""The frame around a command that talks to a server: the connection, the signals, and errors as themselves.

A signal ends the command, never the run that it looks at. The first of them ends it at once: nothing here has anything
to clean up that takes time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import trio

from ...protocol.errors import CallboardError
from ..render.text import safe
from .client import Client, open_client
from .servers import Where, find_server

T = TypeVar("T")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(click.exceptions.Exit):
    """A signal ended the command; `exit_code` says which."""


def with_client(where: Where, body: Callable[[Client], Awaitable[T]]) -> T:
    """What `body` returns, given a client that is connected to the server that is meant.

    Raises:
        CallboardError: it failed, or there is no server.
        Interrupted: a signal came.
    """
    server = find_server(where, os.environ)
    if server.others and sys.stderr.isatty():
        tell(f"{server.others + 1} servers run here; this is the newest, {server.url} (--url names another)")

    async def connected() -> T:
        async with open_client(server) as client:
            client.tell = tell
            await client.connected()
            return await body(client)
        raise AssertionError("unreachable: the nursery swallows no errors")

    return play(connected)


def play(body: Callable[[], Awaitable[T]]) -> T:
    """What `body` returns, played in a trio of its own; raises as `with_client` does."""
    end = trio.run(_play, body)
    if isinstance(end, signal.Signals):
        raise Interrupted(128 + end)
    if isinstance(end, BaseException):
        raise end
    return end[0]


async def _play(body: Callable[[], Awaitable[T]]) -> list[T] | Exception | signal.Signals:
    """A list of what it returned; why it failed; the signal that ended it."""
    came: list[signal.Signals] = []
    end: list[T] = []
    # Who started us with a signal ignored (nohup, a script's background) wants us not to hear it.
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
    """The one error that matters: tasks that fail together have failed for the same reason."""
    errors = [leaf for leaf in _leaves(group) if not isinstance(leaf, trio.Cancelled)]
    return next((leaf for leaf in errors if not isinstance(leaf, CallboardError | OSError)), errors[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def tell(text: str) -> None:
    """A line on stderr."""
    sys.stderr.write(f"callboard: {safe(text)}\n")
    sys.stderr.flush()
