"""Requests of a gateway to a worker, for data that only the executing process has: actors, their control, live texts.

`tree` and `follow_actors` join the actors of all workers, or of the worker that executes a run. Actors outside of runs
are omitted: they have the same paths on each worker, and are visible there.

Each request opens a connection of its own to the worker's control channel, because requests are rare and workers come
and go. A worker trusts a gateway on its machine by the token that the worker stored in the database. Other gateways
need a key of `api.auth.keys` of the worker's config.yaml, in CALLBOARD_WORKER_KEY.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import trio
from trio_websocket import ConnectionClosed, HandshakeError, open_websocket_url

from ....protocol import jsonrpc
from ....protocol.control.errors import error_of
from ....protocol.control.method_structs import Actors, ActorsChanged, WatchingTree
from ....protocol.control.resources import ActorInfo
from ....protocol.decoding import decode_json
from ....protocol.errors import CallboardError
from ....supervisors.cluster import workers
from ....supervisors.cluster.database import ClusterAway

if TYPE_CHECKING:
    from ....supervisors.cluster.workers import Reached
    from .membership import ClusterMembership


KEY = "CALLBOARD_WORKER_KEY"

WITHIN = 10.0
"""Seconds for an answer."""

LONGEST = 64 * 1024 * 1024
"""Maximum bytes of an answer."""

LOOK_EVERY = 1.0
"""Seconds between two reads of the list of workers."""

TakeChanges = Callable[["list[ActorInfo]", "list[str]"], Awaitable[None]]
"""Function for changes: changed actors, and the paths of ended ones."""

log = logging.getLogger("callboard.cluster")


async def ask(worker: Reached, key: str, method: str, params: msgspec.Raw) -> msgspec.Raw:
    """Call a method of a worker and return its result.

    Raises:
        ClusterAway: the worker cannot be reached or refuses access.
        CallboardError: the worker refuses the request, with its error code.
    """
    answers: list[msgspec.Raw] = []

    async def hear(message: jsonrpc.Result | jsonrpc.Notification) -> bool:
        if isinstance(message, jsonrpc.Result):
            answers.append(message.result)
        return bool(answers)

    with trio.move_on_after(WITHIN):
        await _talk(worker, key, method, params, hear)
    if not answers:
        raise _away(worker, f"there was no answer within {WITHIN:g} s")
    return answers[0]


async def follow(worker: Reached, key: str, run: str, after: int, take: Callable[[msgspec.Raw], None]) -> None:
    """Pass the events of a run after a number to `take` as they happen, including deltas of text.

    Returns at the end of the run, or when the worker reports that this reader is too slow. Raises as `ask` does.
    """

    async def hear(message: jsonrpc.Result | jsonrpc.Notification) -> bool:
        if isinstance(message, jsonrpc.Result):
            return False
        if message.method == "_run/event":
            take(decode_json(message.params, _RunEvent).event)
        # `_run/ended` and `_run/lagged` end the subscription.
        return message.method != "_run/event"

    await _talk(worker, key, "_run/subscribe", msgspec.Raw(msgspec.json.encode({"run": run, "after": after})), hear)


class _RunEvent(msgspec.Struct):
    event: msgspec.Raw


async def watch(
    worker: Reached,
    key: str,
    run: str | None,
    interval: float,
    take: Callable[[list[ActorInfo], list[str]], Awaitable[None]],
) -> None:
    """Pass the actors of a worker or run, then each change, to `take`: changed actors and the paths of ended ones.

    Never returns. Raises as `ask` does, for example `ClusterAway` when the worker ends.
    """

    async def hear(message: jsonrpc.Result | jsonrpc.Notification) -> bool:
        if isinstance(message, jsonrpc.Result):
            await take(decode_json(message.result, WatchingTree).actors, [])
        elif message.method == "_actor/changed":
            change = decode_json(message.params, ActorsChanged)
            await take(change.changed, change.gone)
        return False

    params = {"run": run, "interval": interval} if run is not None else {"interval": interval}
    await _talk(worker, key, "_actor/subscribe", msgspec.Raw(msgspec.json.encode(params)), hear)


async def _talk(
    worker: Reached,
    key: str,
    method: str,
    params: msgspec.Raw,
    hear: Callable[[jsonrpc.Result | jsonrpc.Notification], Awaitable[bool]],
) -> None:
    """Send a request and pass the answer and later notifications to `hear` until it returns True."""
    parts = urlsplit(worker.url)
    # Without a frame limit: the gateway shortens frames itself, for its own client.
    url = f"{'wss' if parts.scheme == 'https' else 'ws'}://{parts.netloc}/ws?max_frame=0"
    headers = [(b"Authorization", f"Bearer {worker.token or key}".encode())]
    try:
        async with open_websocket_url(url, extra_headers=headers, max_message_size=LONGEST) as socket:
            await socket.send_message(jsonrpc.encode_request(1, method, params).decode())
            while True:
                frame = await socket.get_message()
                message = jsonrpc.decode(frame.encode() if isinstance(frame, str) else frame)
                if isinstance(message, jsonrpc.ErrorResponse):
                    raise error_of(message.error)
                if not isinstance(message, jsonrpc.Request) and await hear(message):
                    return
    except (HandshakeError, ConnectionClosed, OSError, ValueError) as error:
        raise _away(worker, str(error) or type(error).__name__) from error
    # `open_websocket_url` has a nursery, which may wrap errors into a group: unwrap the expected ones.
    except BaseExceptionGroup as group:
        known, other = group.split((HandshakeError, ConnectionClosed, OSError, ValueError))
        if other is not None or known is None:
            raise
        raise _away(worker, str(known.exceptions[0])) from group


def _away(worker: Reached, why: str) -> ClusterAway:
    return ClusterAway(f"the worker '{worker.name}' can't be reached at {worker.url}: {why}")


async def tree(seat: ClusterMembership, run: str | None) -> list[ActorInfo]:
    """Return the actors of a run, or of all runs. Workers that cannot be reached or refuse are omitted and logged."""
    params = msgspec.Raw(msgspec.json.encode({} if run is None else {"run": run}))
    found: list[ActorInfo] = []
    for worker in (await _workers(seat, run)).values():
        try:
            answer = await ask(worker, os.environ.get(KEY, ""), "_actor/tree", params)
        except CallboardError as error:
            log.debug("%s", error)
            continue
        found += [actor for actor in decode_json(answer, Actors).actors if actor.run]
    return found


async def follow_actors(seat: ClusterMembership, run: str | None, interval: float, take: TakeChanges) -> None:
    """Pass the actors, then each change, to `take` until cancelled.

    The list of workers is read again every `LOOK_EVERY` seconds.
    """
    there: dict[str, trio.CancelScope] = {}
    async with trio.open_nursery() as nursery:
        while True:
            try:
                found = await _workers(seat, run)
            except CallboardError as error:
                log.debug("%s", error)
            else:
                # A worker that is not alive any more may still hold the connection open.
                for sign in there.keys() - found.keys():
                    there[sign].cancel()
                for sign in found.keys() - there.keys():
                    there[sign] = trio.CancelScope()
                    nursery.start_soon(_follow_worker, found[sign], sign, run, interval, take, there)
            await trio.sleep(LOOK_EVERY)


async def _follow_worker(
    worker: Reached, sign: str, run: str | None, interval: float, take: TakeChanges, there: dict[str, trio.CancelScope]
) -> None:
    known: set[str] = set()

    async def hear(changed: list[ActorInfo], gone: list[str]) -> None:
        shown = [actor for actor in changed if actor.run]
        known.update(actor.path for actor in shown)
        # Paths outside of runs were never reported, so neither is their end.
        went = [path for path in gone if path in known]
        known.difference_update(went)
        if shown or went:
            await take(shown, went)

    with there[sign]:
        try:
            await watch(worker, os.environ.get(KEY, ""), run, interval, hear)
        except CallboardError as error:
            log.debug("%s", error)
    # The connection to the worker has ended: report its actors as gone.
    if known:
        await take([], sorted(known))
    del there[sign]


async def _workers(seat: ClusterMembership, run: str | None) -> dict[str, Reached]:
    return await seat.read(workers.living if run is None else lambda db: workers.playing(db, run))
