"""The actors of all workers, or of the one that plays a run, as a gateway shows them.

What workers have beside their runs is not among them: it is called the same at each of them, and seen there.
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
    from .seat import Seat

LOOK_EVERY = 1.0
"""Seconds between two looks at which workers there are."""

Take = Callable[["list[ActorInfo]", "list[str]"], Awaitable[None]]
"""Told which actors are otherwise, and the paths of those that are gone."""

log = logging.getLogger("callboard.cluster")


async def tree(seat: Seat, run: str | None) -> list[ActorInfo]:
    """The actors of a run, or of all runs of workers that can be reached."""
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


async def follow(seat: Seat, run: str | None, interval: float, take: Take) -> None:
    """Give those actors to `take`, and what changes, for as long as this lasts; workers may come and go meanwhile."""
    there: dict[str, trio.CancelScope] = {}
    async with trio.open_nursery() as nursery:
        while True:
            try:
                found = await _workers(seat, run)
            except CallboardError as error:
                log.debug("%s", error)
            else:
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
        went = [path for path in gone if path in known]
        known.difference_update(went)
        if shown or went:
            await take(shown, went)

    with there[sign]:
        try:
            await watch(worker, os.environ.get(KEY, ""), run, interval, hear)
        except CallboardError as error:
            log.debug("%s", error)
    if known:
        await take([], sorted(known))
    del there[sign]


async def _workers(seat: Seat, run: str | None) -> dict[str, Reached]:
    return await seat.read(workers.living if run is None else lambda db: workers.playing(db, run))
