"""The subprocesses of a root: those that live, their reapers, and the guardian.

Made at the first subprocess of a root, closed by the root when its tree is down. Two roots in one program have two,
with a guardian each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

from ..protocol.kernel.events import Warned
from .guardian_link import GuardianLink, ReaperLink

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .child import Child
    from .root import Root

AT_ONCE = 8
"""Threads that prepare confinements at the same time in one root."""

IDLE = 4
"""Reapers kept for the next processes. Each has 1 MB of its own; to fork one costs 1 ms."""


@final
class Processes:
    """The subprocesses of one root.

    Attributes:
        live: those of which something may be left.
        pids: path of the actor -> pid of its process, for those who look at the tree.
        link: to the guardian.
        limiter: bounds the threads that prepare confinements.
        hurry: set when graces are to be skipped.
    """

    def __init__(self, root: Root) -> None:
        self.live: set[Child] = set()
        self.pids: dict[str, int] = {}
        self.limiter = trio.CapacityLimiter(AT_ONCE)
        self.hurry = root.hurry
        self.link = GuardianLink(self.start_task, self.warn, self.limiter)
        self._root = root
        self._idle: list[ReaperLink] = []

    async def take(self) -> ReaperLink:
        """Return a reaper that has nothing to do, which is the caller's until `give_back`.

        Raises:
            ProcessError: there is no guardian, and none could be started.
            OSError: no reaper can be forked.
        """
        while self._idle:
            reaper = self._idle.pop()
            if not reaper.lost:
                return reaper
            reaper.close()
        return await self.link.new_reaper()

    def give_back(self, reaper: ReaperLink) -> None:
        """Keep this reaper for the next process, or let it go. If something is left of its process, it ends that."""
        if reaper.lost or not reaper.empty.is_set() or len(self._idle) >= IDLE:
            reaper.close()
        else:
            self._idle.append(reaper)

    async def close(self) -> None:
        """End what is left, and let the guardian go. The caller bounds the time.

        What is left when that time is over is ended by the reapers, which lose their sockets.
        """
        try:
            for child in self.live:
                child.reaper.order("kill")
            for child in list(self.live):
                await child.end_now()
            while self._idle:
                self._idle.pop().close()
            await self.link.dismiss()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leave what is left to the reapers. Harmless after `close`."""
        for reaper in [*self._idle, *(child.reaper for child in self.live)]:
            reaper.close()
        self._idle.clear()
        self.link.abandon()

    def warn(self, code: str, message: str) -> None:
        """Tell the world on the kernel's event stream."""
        self._root.actor.emit(Warned(code=code, message=message))

    def start_task(self, body: Callable[[], Awaitable[object]]) -> None:
        """Run a task that may be cancelled when the tree is down."""
        self._root.nursery.start_soon(body)
