"""Pages of what has happened in a run, for readers that ask for one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ....protocol.control.caller import Caller
from ....protocol.control.own import Events

if TYPE_CHECKING:
    from .hub import Hub


async def page_of_events(hub: Hub, caller: Caller, run: str, after: int, limit: int) -> Events:
    """As `Hub.events`, with the `after` of the next page; None at the end of a run that is over."""
    found = await hub.events(caller, run, after, limit)
    last = found[-1].seq if found else after
    info = hub.get(caller, run)
    at_the_end = info.over and (last >= info.seq or not found)
    return Events(events=[msgspec.Raw(event.data) for event in found], next=None if at_the_end else last)
