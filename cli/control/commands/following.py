"""What `callboard logs` does: a run's story on stdout, from the state directory or from a server."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import trio

from ....actors.io.lines import from_any_thread
from ....protocol.errors import CallboardError, NoServer, NotFound
from ..client import Client
from ..frame import tell, with_client
from ..lookup import find_run
from ..servers import Where, find_server
from ..subscriptions import RunEvents
from . import kept
from .relay import Lines, Relay, Story


@dataclass(frozen=True, kw_only=True)
class Request:
    """The flags of `callboard logs`, as click read them."""

    run: str
    follow: bool
    after: int
    output: str
    verbose: bool
    url: str | None
    token: str | None


def show_log(request: Request) -> int:
    """Shows what has happened, and with `follow` what comes; returns the exit code.

    Raises:
        CallboardError: there is no such run.
        BrokenPipeError: the reader of stdout has gone.
    """
    where = Where(url=request.url, token=request.token)
    if request.url is None and not (request.follow and _is_under_way(request.run)):
        try:
            return _from_disk(request)
        except NotFound:
            try:  # a server may keep its runs elsewhere
                find_server(where, os.environ)
            except NoServer:
                pass
            else:
                return _from_server(request, where)
            raise
    return _from_server(request, where)


def _is_under_way(word: str) -> bool:
    try:
        return not kept.kept_run(word).over
    except CallboardError:
        return True  # perhaps a server knows


def _relay(request: Request) -> Relay:
    return Lines(sys.stdout) if request.output == "stream-json" else Story(sys.stdout, verbose=request.verbose)


def _from_disk(request: Request) -> int:
    run = kept.kept_run(request.run)
    relay = _relay(request)
    gone: list[bool] = []
    relay.when_gone(lambda: gone.append(True))
    for line in kept.kept_lines(run.run, after=request.after):
        relay.put(line)
        if gone:
            break
    if isinstance(relay, Story):
        relay.lost(run)
    relay.finish(None)
    return 0


def _from_server(request: Request, where: Where) -> int:
    relay = _relay(request)

    async def follow(client: Client) -> None:
        run = await find_run(client, request.run)
        events = RunEvents(client, run.run, after=request.after)
        await events.begin()
        last = None if request.follow else events.newest
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

    with_client(where, follow)
    relay.finish(None)
    return 0
