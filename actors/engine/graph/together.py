"""Running many children at once: the nodes of a super-step, the items of a map.

The parent parks once, not once per child: each end starts the next child and the last one wakes the parent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import outcome
import trio

from ....protocol.errors import ShuttingDown

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ....supervisors.ref import End, Ref

Launch = tuple[str, Callable[..., Awaitable[Any]], tuple[Any, ...]]
"""Name, body and arguments of a child."""


async def run_together(me: Actor, launches: Sequence[Launch], limit: int) -> list[End]:
    """Run these as children of `me`, at most `limit` at a time; their ends, in the order given.

    Nobody is interrupted because another failed. If this call is cancelled, no further child is started, and those
    that run are interrupted and waited for, as long as `me` has time for its clean-up.

    Raises:
        ShuttingDown: the root stops, so not all of them were started.
    """
    if len(launches) == 1:
        return [await _run_one(me, *launches[0])]
    group = _Group(me, launches)
    group.start(limit)
    try:
        await group.wait()
    except trio.Cancelled:
        group.interrupt()
        with me.cleanup():
            await group.wait()
        raise
    return [end for end in group.ends if end is not None]


async def _run_one(me: Actor, name: str, body: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> End:
    """The same for a single child, which needs no book-keeping: most steps of most graphs are one node."""
    ref = me.spawn(body, *args, name=name, link=False)
    try:
        return await ref.wait()
    except trio.Cancelled:
        ref.cancel()
        with me.cleanup():
            await ref.wait()
        raise


class _Group:
    __slots__ = ("_launches", "_me", "_next", "_refused", "_running", "_task", "ends")

    def __init__(self, me: Actor, launches: Sequence[Launch]) -> None:
        self.ends: list[End | None] = [None] * len(launches)
        self._me = me
        self._launches = launches
        self._next = 0
        self._running: dict[int, Ref[Any]] = {}
        self._task: trio.lowlevel.Task | None = None
        self._refused: ShuttingDown | None = None

    def start(self, limit: int) -> None:
        for _ in range(min(max(1, limit), len(self._launches))):
            self._launch()

    def interrupt(self) -> None:
        self._next = len(self._launches)
        for ref in self._running.values():
            ref.cancel()

    async def wait(self) -> None:
        if not self._running:
            await trio.lowlevel.checkpoint()
            return
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _launch(self) -> None:
        index = self._next
        self._next += 1
        name, body, args = self._launches[index]
        ref = self._running[index] = self._me.spawn(body, *args, name=name, link=False)
        ref.on_end(lambda end: self._ended(index, end))

    def _ended(self, index: int, end: End) -> None:
        self.ends[index] = end
        del self._running[index]
        try:
            if self._next < len(self._launches) and not self._me.stopping:
                self._launch()
        except ShuttingDown as error:  # we are in the task of the child that ended, which it does not concern
            self._refused = error
        if (self._refused is not None or not self._running) and self._task is not None:
            task, self._task = self._task, None
            result = outcome.Value(None) if self._refused is None else outcome.Error(self._refused)
            trio.lowlevel.reschedule(task, result)

    def _abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
