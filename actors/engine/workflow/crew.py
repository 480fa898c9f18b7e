"""Children that come and go: a run hands them out as it learns of them, and takes back whoever is done.

`graph.together` runs a batch to its end; here new ones are started whenever one of them has ended, so that two cycles
of a workflow go round each at their own pace. At most `limit` run at once, and of those on the same *lane* one at a
time; the others wait in the order in which they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import outcome
import trio

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ....supervisors.ref import End, Ref

Key = TypeVar("Key")


class _Hired(Generic[Key]):
    __slots__ = ("args", "body", "key", "lane", "name")

    def __init__(
        self, key: Key, name: str, body: Callable[..., Awaitable[Any]], args: tuple[Any, ...], lane: str | None
    ) -> None:
        self.key = key
        self.name = name
        self.body = body
        self.args = args
        self.lane = lane


class Crew(Generic[Key]):
    """See the module. Leaving the block interrupts those that still run, and waits for them.

    Args:
        me: whose children they are; only its own task uses the crew.
        limit: how many run at once.
    """

    def __init__(self, me: Actor, limit: int) -> None:
        self._me = me
        self._limit = limit
        self._ready: deque[_Hired[Key]] = deque()
        self._lanes: dict[str, deque[_Hired[Key]]] = {}  # of each lane that is taken, who waits for it
        self._running: dict[Key, Ref[Any]] = {}
        self._ended: deque[tuple[Key, End]] = deque()
        self._task: trio.lowlevel.Task | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running:
            for ref in self._running.values():
                ref.cancel()
            with self._me.cleanup():
                while self._running:
                    await self._park()

    def __bool__(self) -> bool:
        """Whether somebody is under way or waiting for it."""
        return bool(self._running or self._ready or self._ended)

    def hire(
        self,
        key: Key,
        name: str,
        body: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        *,
        lane: str | None = None,
    ) -> None:
        """Start a child, now or as soon as there is room for it.

        Raises:
            ShuttingDown: no new work is admitted.
        """
        hired = _Hired(key, name, body, args, lane)
        if lane is not None and lane in self._lanes:
            self._lanes[lane].append(hired)
            return
        if lane is not None:
            self._lanes[lane] = deque()
        self._ready.append(hired)
        self._fill()

    async def ended(self) -> tuple[Key, End]:
        """The next who has ended. A checkpoint only if nobody has yet.

        Raises:
            ShuttingDown: no new work is admitted, and somebody waits.
        """
        while not self._ended:
            await self._park()
        key, end = self._ended.popleft()
        self._fill()
        return key, end

    def _fill(self) -> None:
        while self._ready and len(self._running) < self._limit:
            self._launch(self._ready.popleft())

    def _launch(self, hired: _Hired[Key]) -> None:
        key = hired.key
        ref = self._running[key] = self._me.spawn(hired.body, *hired.args, name=hired.name, link=False)

        def over(end: End) -> None:
            del self._running[key]
            if hired.lane is not None:
                self._pass_on(hired.lane)
            self._ended.append((key, end))
            if self._task is not None:
                task, self._task = self._task, None
                trio.lowlevel.reschedule(task, outcome.Value(None))

        ref.on_end(over)

    def _pass_on(self, lane: str) -> None:
        """A lane is free: the next who waits for it may begin."""
        waiting = self._lanes[lane]
        if waiting:
            self._ready.append(waiting.popleft())
        else:
            del self._lanes[lane]

    async def _park(self) -> None:
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
