"""What `callboard logs` does: a run's story on stdout, from the state directory or from a server."""

from __future__ import annotations

import os
import sys

import trio

from ....actors.io.lines import from_any_thread
from ....protocol.errors import CallboardError, NoServer, NotFound
from ..client import Client, find_run, tell, with_client
from ..servers import Where, find_server
from ..subscriptions import RunEvents
from . import kept
from .relay import LineRelay, Relay, Story


def show_log(
    *, run: str, follow: bool, after: int, output: str, verbose: bool, url: str | None, token: str | None
) -> int:
    """Shows what has happened, and with `follow` what comes; returns the exit code.

    Raises:
        CallboardError: there is no such run.
        BrokenPipeError: the reader of stdout has gone.
    """
    relay = LineRelay(sys.stdout) if output == "stream-json" else Story(sys.stdout, verbose=verbose)
    where = Where(url=url, token=token)
    under_way = _is_under_way(run) if follow else None
    if url is not None or (under_way is None and follow) or (under_way and _has_server(where)):
        return _from_server(run, relay, where, after=after, follow=follow)
    try:
        return _from_disk(run, relay, after, follow=bool(under_way))
    except NotFound:
        if _has_server(where):  # which may keep its runs elsewhere
            return _from_server(run, relay, where, after=after, follow=follow)
        raise


def _is_under_way(word: str) -> bool | None:
    """None where there is no log; perhaps a server knows."""
    try:
        return not kept.kept_run(word).over
    except CallboardError:
        return None


def _has_server(where: Where) -> bool:
    try:
        find_server(where, os.environ)
    except NoServer:
        return False
    return True


def _from_disk(word: str, relay: Relay, after: int, *, follow: bool) -> int:
    run = kept.kept_run(word)
    gone: list[bool] = []
    relay.when_gone(lambda: gone.append(True))
    for line in kept.kept_lines(run.run, after=after, follow=follow):
        relay.put(line)
        if gone:
            break
    if isinstance(relay, Story):
        relay.lost(kept.kept_run(run.run) if follow else run)
    relay.finish(None)
    return 0


def _from_server(word: str, relay: Relay, where: Where, *, after: int, follow: bool) -> int:
    async def read_along(client: Client) -> None:
        run = await find_run(client, word)
        events = RunEvents(client, run.run, after=after)
        await events.begin()
        last = None if follow else events.newest
        gone = trio.CancelScope()
        relay.when_gone(from_any_thread(gone.cancel))
        with gone:
            while last is None or events.seq < last:
                try:
                    relay.put(await anext(events))
                except StopAsyncIteration:
                    break
        if isinstance(relay, Story) and not gone.cancelled_caught:
            relay.lost(run)
        if events.missing:
            tell(f"warning: {events.missing} events of {run.run} were not kept and could not be shown")

    with_client(where, read_along)
    relay.finish(None)
    return 0
