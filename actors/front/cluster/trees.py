"""Actor tree of a cluster: the actors of all workers, or of the worker that executes a run.

Actors outside of runs are omitted: they have the same paths on each worker, and are visible there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.own import Actors
from ....protocol.decoding import decode_json
from ....protocol.errors import CallboardError
from ....supervisors.cluster import workers
from .relay import KEY, ask, watch

if TYPE_CHECKING:
    from ....protocol.control.things import ActorInfo
    from ....supervisors.cluster.workers import Reached
    from .membership import ClusterMembership

LOOK_EVERY = 1.0
"""Seconds between two reads of the list of workers."""

Take = Callable[["list[ActorInfo]", "list[str]"], Awaitable[None]]
"""Function for changes: changed actors, and the paths of ended ones."""

log = logging.getLogger("callboard.cluster")


async def tree(seat: ClusterMembership, run: str | None) -> list[ActorInfo]:
    """Return the actors of a run, or of all runs on workers that can be reached."""
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


async def follow(seat: ClusterMembership, run: str | None, interval: float, take: Take) -> None:
    """Pass the actors, then each change, to `take` until cancelled; adapts to workers that come and go."""
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
                    nursery.start_soon(_follow, found[sign], sign, run, interval, take, there)
            await trio.sleep(LOOK_EVERY)


async def _follow(
    worker: Reached, sign: str, run: str | None, interval: float, take: Take, there: dict[str, trio.CancelScope]
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
