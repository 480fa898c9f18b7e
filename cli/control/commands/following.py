"""Implementation of `callboard logs`: prints a run's narration or events, from the state directory or a server."""

from __future__ import annotations

import os
import sys

import trio

from ....actors.io.lines import from_any_thread
from ....protocol.errors import CallboardError, NoServer, NotFound
from ..client import ControlClient, find_run, print_to_stderr, with_client
from ..servers import Where, find_server
from ..subscriptions import RunEvents
from . import stored_runs
from .relay import LineRelay, Relay, RelayedStory


def show_log(
    *, run: str, follow: bool, after: int, output: str, verbose: bool, url: str | None, token: str | None
) -> int:
    """Print past events, and with `follow` new ones; return the exit code.

    Raises:
        CallboardError: there is no such run.
        BrokenPipeError: the reader of stdout has closed the pipe.
    """
    relay = LineRelay(sys.stdout) if output == "stream-json" else RelayedStory(sys.stdout, verbose=verbose)
    where = Where(url=url, token=token)
    under_way = _is_under_way(run) if follow else None
    if url is not None or (under_way is None and follow) or (under_way and _has_server(where)):
        return _from_server(run, relay, where, after=after, follow=follow)
    try:
        return _from_disk(run, relay, after, follow=bool(under_way))
    except NotFound:
        if _has_server(where):  # which may have another state directory
            return _from_server(run, relay, where, after=after, follow=follow)
        raise


def _is_under_way(word: str) -> bool | None:
    """Return True for an active run; None without a log, because a server may know the run."""
    try:
        return not stored_runs.find_stored_run(word).over
    except CallboardError:
        return None


def _has_server(where: Where) -> bool:
    try:
        find_server(where, os.environ)
    except NoServer:
        return False
    return True


def _from_disk(word: str, relay: Relay, after: int, *, follow: bool) -> int:
    run = stored_runs.find_stored_run(word)
    gone: list[bool] = []
    relay.on_write_error(lambda: gone.append(True))
    for line in stored_runs.stored_event_lines(run.run, after=after, follow=follow):
        relay.put(line)
        if gone:
            break
    if isinstance(relay, RelayedStory):
        relay.lost(stored_runs.find_stored_run(run.run) if follow else run)
    relay.finish(None)
    return 0


def _from_server(word: str, relay: Relay, where: Where, *, after: int, follow: bool) -> int:
    async def read_along(client: ControlClient) -> None:
        run = await find_run(client, word)
        events = RunEvents(client, run.run, after=after)
        await events.begin()
        last = None if follow else events.newest
        gone = trio.CancelScope()
        relay.on_write_error(from_any_thread(gone.cancel))
        with gone:
            while last is None or events.seq < last:
                try:
                    relay.put(await anext(events))
                except StopAsyncIteration:
                    break
        if isinstance(relay, RelayedStory) and not gone.cancelled_caught:
            relay.lost(run)
        if events.missing:
            print_to_stderr(f"warning: {events.missing} events of {run.run} were not stored, and are missing here")

    with_client(where, read_along)
    relay.finish(None)
    return 0
