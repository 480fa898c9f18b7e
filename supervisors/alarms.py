"""Time limits of asks, and timers of actors: one sleeper for all of a root, in place of a task or a scope for each.

A cancel scope costs about as much as the ask that it limits, and nearly all asks are answered long before. So a
limit is an entry in a heap, and one task sleeps until the first of them. Entries of asks that were answered stay where
they are until their time comes, or until there are so many of them that sorting them out is cheap per entry. The same
holds for timers that were cancelled.
"""

from __future__ import annotations

import copy
import heapq
import itertools
from typing import TYPE_CHECKING, Any, Protocol, final

import trio

if TYPE_CHECKING:
    from .life import Life
    from .root import Root

SOME = 1_000
"""Entries that are kept whatever became of their asks."""


class Limited(Protocol):
    """What an alarm is set for: an ask (`Request`) or a `Timer`."""

    @property
    def waits(self) -> bool:
        """Whether the alarm still means something."""

    def expire(self, seconds: float) -> None:
        """The time, so many seconds, is up."""


@final
class Timer:
    """A message that an actor has set for itself with `tell_later`."""

    __slots__ = ("_actor", "_message", "_put")

    def __init__(self, actor: Life, message: Any) -> None:
        self._actor: Life | None = actor
        self._message = message
        self._put = False

    @property
    def waits(self) -> bool:
        """Whether its time is still to come; False once the message is in the mailbox, or cancelled."""
        return self._actor is not None and not self._put

    def expire(self, _: float) -> None:
        """Its time is up: put the message behind the mail that waits, which may exceed the bound by it."""
        actor = self._actor
        if actor is not None and not self._put:
            self._put = True
            self._forget(actor)
            # A copy, by whose identity `cancel` finds it: the same message may have been told a second time.
            self._message = copy.copy(self._message)
            actor.mailbox.put_own(self._message)

    def cancel(self) -> bool:
        """Let the message not be received, also if it is in the mailbox by now. False if it was received already."""
        actor, self._actor = self._actor, None
        if actor is None:
            return False
        message, self._message = self._message, None
        if self._put:
            return actor.mailbox.take_out(message)
        self._forget(actor)
        return True

    def _forget(self, actor: Life) -> None:
        if actor.timers is not None:
            actor.timers.discard(self)


@final
class Alarms:
    """Wakes askers whose time is up, and puts the messages of timers into mailboxes."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._entries: list[tuple[float, int, float, Limited]] = []
        self._numbers = itertools.count()
        self._sort_out_at = SOME
        self._nap: trio.CancelScope | None = None
        self._watched = False

    def __len__(self) -> int:
        return len(self._entries)

    def set(self, seconds: float, limited: Limited) -> None:
        """Let an ask or a timer expire, `seconds` from now, if it still waits then."""
        entries = self._entries
        if len(entries) >= self._sort_out_at:
            entries[:] = [entry for entry in entries if entry[3].waits]
            heapq.heapify(entries)
            self._sort_out_at = 2 * len(entries) + SOME
        when = trio.current_time() + seconds
        heapq.heappush(entries, (when, next(self._numbers), seconds, limited))
        if not self._watched:
            self._watched = True
            self._root.nursery.start_soon(self._watch, name="alarms")
        elif entries[0][3] is limited and self._nap is not None:
            self._nap.deadline = when

    async def _watch(self) -> None:
        entries = self._entries
        while True:
            with trio.CancelScope(deadline=entries[0][0] if entries else float("inf")) as self._nap:
                await trio.sleep_forever()
            now = trio.current_time()
            while entries and entries[0][0] <= now:
                _, _, seconds, limited = heapq.heappop(entries)
                limited.expire(seconds)
