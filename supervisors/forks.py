"""Notices processes that use the time they have to end for starting more and more others, and stops them.

A fork bomb doubles every few milliseconds, and each of its processes takes a share of the processor that we would need
to end it. So it has to be noticed while it is small, and then be stopped at once: in this thread, without a detour over
another one that the bomb holds up as well. The event loop stands still for that long, a few milliseconds as a rule.

One task watches for all children of a root that are being ended. It reads the number of tasks of the machine, which
costs next to nothing, and counts the children's processes only when that has grown.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, final

import trio

from .guardian import Census, Seen, freeze

if TYPE_CHECKING:
    from .child import Child
    from .processes import Processes

FORKS = 16
"""Processes that a child may start while it ends; one that starts more loses its grace periods."""

POLL = 0.01

LOOKS_WITHIN = 0.2
"""Seconds for looks in a row, until one finds none that is new. What is left then is for the sweep, which may wait."""


@final
class ForkWatch:
    """Of one root."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._ending: set[Child] = set()
        self._watching = False

    @contextmanager
    def over(self, child: Child) -> Iterator[None]:
        """Watch this child while the block lasts."""
        self._ending.add(child)
        if not self._watching:
            self._watching = True
            self._processes.start_task(self._watch)
        try:
            yield
        finally:
            self._ending.discard(child)

    async def _watch(self) -> None:
        try:
            before = running_tasks()
            while self._ending and before is not None:
                await trio.sleep(POLL)
                now = running_tasks() or before
                before = min(before, now)
                if now - before > FORKS:
                    self.look_closer()
                    before = now
        finally:
            self._watching = False

    def look_closer(self) -> None:
        """Count the processes of the children that are being ended, and leave those stopped that have too many."""
        children = list(self._ending)
        for child in children:
            child.signal_group(signal.SIGSTOP)
        members = self._frozen(children)
        for child in children:
            living = members.get(child)
            if child.killing:  # continued now, it could fork between the last look and SIGKILL
                continue
            if living is None:  # there was no look, so it is not known how many there are
                child.signal_group(signal.SIGCONT)
            elif not child.count_forks(len(living)):
                child.signal_group(signal.SIGCONT)
                self._processes.tell(living, signal.SIGCONT)

    def _frozen(self, children: list[Child]) -> dict[Child, list[Seen]]:
        """The processes of these children, all of them stopped; none of a child if too many files are open to look."""
        session, tokens = os.getsid(0), frozenset(child.token.encode() for child in children)
        members: dict[Child, list[Seen]] = {}
        frozen: set[tuple[int, int]] = set()
        until = time.monotonic() + LOOKS_WITHIN
        while time.monotonic() < until:
            try:
                census = Census(self._processes.strangers, tokens)
            except OSError:
                break  # too many files are open
            members = {child: child.living(census) for child in children}
            new = [seen for living in members.values() for seen in living if (seen.pid, seen.start) not in frozen]
            if not new:
                break
            freeze(new, session)
            frozen.update((seen.pid, seen.start) for seen in new)
        return members


def running_tasks() -> int | None:
    """Processes and threads of this machine; where that is not told, only the processes; None if we can't look."""
    with suppress(OSError, ValueError, IndexError):
        told = int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
        if told:
            return told
    with suppress(OSError):
        return sum(name.isdigit() for name in os.listdir("/proc"))  # noqa: PTH208 - half the time
    return None
