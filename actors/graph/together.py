"""Running many children at once: the nodes of a super-step, the items of a map.

The parent parks once, not once per child: each end starts the next child and the last one wakes the parent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import outcome
import trio

if TYPE_CHECKING:
    from ...supervisors import Actor
    from ...supervisors.ref import End

Launch = tuple[str, Callable[..., Awaitable[Any]], tuple[Any, ...]]
"""Name, body and arguments of a child."""


async def run_together(me: Actor, launches: Sequence[Launch], limit: int) -> list[End]:
    """Run these as children of `me`, at most `limit` at a time; their ends, in the order given.

    Nobody is interrupted because another failed. If this call is cancelled, no further child is started; those
    that run are ended with `me`.
    """
    group = _Group(me, launches)
    group.start(limit)
    await group.wait()
    return [end for end in group.ends if end is not None]


class _Group:
    __slots__ = ("_launches", "_me", "_missing", "_next", "_task", "ends")

    def __init__(self, me: Actor, launches: Sequence[Launch]) -> None:
        self.ends: list[End | None] = [None] * len(launches)
        self._me = me
        self._launches = launches
        self._next = 0
        self._missing = len(launches)
        self._task: trio.lowlevel.Task | None = None

    def start(self, limit: int) -> None:
        for _ in range(min(limit, len(self._launches))):
            self._launch()

    async def wait(self) -> None:
        if not self._missing:
            await trio.lowlevel.checkpoint()
            return
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _launch(self) -> None:
        index = self._next
        self._next += 1
        name, body, args = self._launches[index]
        ref = self._me.spawn(body, *args, name=name, link=False)
        ref.on_end(lambda end: self._ended(index, end))

    def _ended(self, index: int, end: End) -> None:
        self.ends[index] = end
        self._missing -= 1
        if self._next < len(self._launches) and not self._me.stopping:
            self._launch()
        if not self._missing and self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task, outcome.Value(None))

    def _abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._next = len(self._launches)
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
