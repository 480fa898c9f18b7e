"""What the models of a run saw and said, for those who may read the run: a list of its calls, and one of them whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.control.caller import Caller
from ....protocol.control.own import Calls
from ....protocol.errors import NotFound, UsageError
from ....protocol.model_calls import ModelCall, ModelCallDetail
from .logs.calls import has_calls, read_call, read_calls

if TYPE_CHECKING:
    from .hub import Hub

MOST = 1000
"""Calls of one page."""

LONGEST_PAGE = 256 * 1024
"""Bytes of a page, unless a single call is longer."""

HOW_TO_KEEP = "`keep_requests: true` in config.yaml has them kept from the next run on"


async def calls_of(
    hub: Hub, caller: Caller, run: str, *, after: int = 0, limit: int = 100, actor: str | None = None
) -> Calls:
    """A page of the calls of a run that come after a number, oldest first.

    Args:
        actor: the path of an actor: only its calls, and those of all below it.

    Raises:
        NotFound, Denied: as `Hub.get`; or nothing is kept of this run.
    """
    if not 1 <= limit <= MOST:
        raise UsageError(f"`limit` is a number from 1 to {MOST}, not {limit}")
    found = await _read(hub, caller, run)
    first = found[0].number if found else 1
    meant = [call for call in found if call.number > after and (actor is None or below(call.actor, actor))]
    page: list[ModelCall] = []
    size = 0
    for call in meant[:limit]:
        size += len(msgspec.json.encode(call))
        if page and size > LONGEST_PAGE:
            break
        page.append(call)
    return Calls(calls=page, next=page[-1].number if len(page) < len(meant) else None, dropped=first - 1)


async def call_of(hub: Hub, caller: Caller, run: str, number: int | None = None) -> ModelCallDetail:
    """One call with its request and its reply; without a number the last one.

    Raises:
        NotFound, Denied: as `calls_of`; or there is no such call.
    """
    calls = await _read(hub, caller, run)
    if number is None and calls:
        number = calls[-1].number
    call = await trio.to_thread.run_sync(read_call, hub.logs.directory / run, number) if number else None
    if call is None:
        raise no_call(run, number, calls)
    return call


async def _read(hub: Hub, caller: Caller, run: str) -> list[ModelCall]:
    info = await hub.look(caller, run)
    await hub.logs.flush()  # a run that is over may have lines that wait for the disk
    directory = hub.logs.directory / info.run
    found = await trio.to_thread.run_sync(read_calls, directory)
    if not found and not await trio.to_thread.run_sync(has_calls, directory):
        raise nothing_kept(run)
    return found


def below(path: str, top: str) -> bool:
    """Whether an actor is this one, or stands below it."""
    return path == top or path.startswith(f"{top}/")


def nothing_kept(run: str) -> NotFound:
    """The error for a run of which no call is kept."""
    return NotFound(f"no request to a model is kept of {run}: it made none, or they were not to be kept; {HOW_TO_KEEP}")


def no_call(run: str, number: int | None, calls: list[ModelCall]) -> NotFound:
    """The error for a call that there is not."""
    if not calls:
        return NotFound(f"no request to a model of {run} can be read")
    first, last = calls[0].number, calls[-1].number
    if number is not None and 0 < number < first:
        return NotFound(f"call {number} of {run} was dropped for want of room; kept are {first} to {last}")
    return NotFound(f"{run} has no call {number}; kept are {first} to {last}")
