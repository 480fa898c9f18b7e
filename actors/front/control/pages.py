"""Pages of a run's events, for readers that poll."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from ....protocol.control.caller import Caller
from ....protocol.control.own import Events

if TYPE_CHECKING:
    from .hub import Hub


LONGEST_PAGE = 512 * 1024
"""Bytes of a page of events, unless a single one is longer."""


async def page_of_events(hub: Hub, caller: Caller, run: str, after: int, limit: int) -> Events:
    """Return a page of `Hub.events` with the `after` of the next page, which is None at the end of a finished run."""
    found = await hub.events(caller, run, after, limit)
    sizes = accumulate(len(event.data) + 1 for event in found)
    found = found[: max(sum(size <= LONGEST_PAGE for size in sizes), 1)]
    last = found[-1].seq if found else after
    info = hub.get(caller, run)
    at_the_end = info.over and (last >= info.seq or not found)
    return Events(events=[msgspec.Raw(event.data) for event in found], next=None if at_the_end else last)
