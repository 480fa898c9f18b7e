"""What `callboard stop` does: ends runs, or actors in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import trio

from ....protocol.control import own
from ...render.text import json_object, safe
from ..client import Client
from ..frame import with_client
from ..lookup import find_run
from ..servers import Where
from ..subscriptions import RunEvents

_WAIT = 30.0
"""Seconds for a run to end once it was cancelled; its actors' graces are shorter."""


@dataclass(frozen=True)
class Stopped:
    """What became of one target: `status` is `cancelled`, how a run had ended before, or `stopping`."""

    target: str
    status: str
    changed: bool


def stop_targets(where: Where, targets: Sequence[str], *, as_json: bool) -> str:
    """The text for stdout."""

    async def stop(client: Client) -> list[Stopped]:
        return [
            await (_stop_actor(client, f"/{word}") if "/" in word else _stop_run(client, word))
            for word in (target.strip("/") for target in targets)
        ]

    done = with_client(where, stop)
    if as_json:
        return json_object(stopped=[asdict(each) for each in done])
    return "".join(f"{safe(each.target)}: {_told(each)}\n" for each in done)


def _told(end: Stopped) -> str:
    if end.changed:
        return "cancelled" if end.status == "cancelled" else f"told to end ({safe(end.status)})"
    return f"had ended before ({safe(end.status)})"


async def _stop_run(client: Client, word: str) -> Stopped:
    run = await find_run(client, word)
    if run.over:
        return Stopped(run.run, run.status, False)
    events = RunEvents(client, run.run, after=run.seq)
    await events.begin()
    cancelled = (await client.ask("_run/cancel", own.Cancelled, run=run.run)).cancelled
    with trio.move_on_after(_WAIT):
        async for _ in events:
            pass
    return Stopped(run.run, events.status or "stopping", cancelled)


async def _stop_actor(client: Client, path: str) -> Stopped:
    cancelled = (await client.ask("_actor/cancel", own.Cancelled, path=path)).cancelled
    return Stopped(path, "cancelled" if cancelled else "gone", cancelled)
