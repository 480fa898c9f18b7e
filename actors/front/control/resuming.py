"""Goes on with durable runs whose process was killed: by itself when a server starts, or as a caller wants it.

At its start a server goes on with what servers of its configuration directory had under way (`durable.resume: auto`);
with the runs of terminals a person goes on. Followers find such a run under way before the server listens. Then they
are taken `AT_ONCE` at a time, since each has its rows read and folded. One that can't go on stays as it is, and says
why; so does one that is stuck: processes that went on with it have died without a new row of it, again and again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import trio

from ....protocol.control.things import RunInfo
from ....protocol.errors import CallboardError, Conflict, ShuttingDown
from ....protocol.journal import BY_SERVER
from ...runs.durable import Taken, take, take_several
from ...runs.loading import NO_HOOKS
from .runs.running import Running

if TYPE_CHECKING:
    from ...runs.interrupted import Interrupted
    from ...runs.root import Root
    from .logs.runs import RunLogs
    from .runs.dormant import Dormant
    from .sessions import HubSessions, SessionTurn

AT_ONCE = 20
"""Runs whose rows are read and folded side by side."""

SEVERAL = 50
"""Runs of one process that are claimed together."""

ASKS_WITHIN = 5.0
"""Seconds in which a run that goes on has asked what it had asked before."""

WELL_AFTER = 300.0
"""Seconds after which a process that goes on with runs is not one that they end at once."""

log = logging.getLogger("callboard.control")


class Resuming:
    """See the module.

    Args:
        root, logs, running: of the hub.
        sessions: plays runs that are turns of a session.
        dormant: has those that wait for people alone.
    """

    def __init__(self, root: Root, logs: RunLogs, running: Running, sessions: HubSessions, dormant: Dormant) -> None:
        self._root = root
        self._logs = logs
        self._running = running
        self._sessions = sessions
        self._dormant = dormant
        self._waiting: list[Interrupted] = []
        self._kept: dict[str, Taken] = {}
        self._begun: dict[str, float] = {}  # when each has begun to go on; -1 before

    def settles(self, run: str) -> bool:
        """Whether a run is about to go on here, and may not have asked yet what it had asked before."""
        begun = self._begun.get(run)
        return begun is not None and (begun < 0 or trio.current_time() - begun < ASKS_WITHIN)

    @property
    def held(self) -> set[str]:
        """The runs that are this process's, and that it could not go on with."""
        return set(self._kept)

    def expect(self) -> None:
        """Find the runs that go on by themselves; from now on they can be followed."""
        home = str(self._root.config_dir)
        for run in list(self._logs.interrupted.values()):
            about, info = run.about, self._logs.past.get(run.run)
            if about is None or info is None or about.by != BY_SERVER or about.config_dir != home:
                continue
            if run.stuck:
                log.warning(
                    "%s is stuck: processes that went on with it were killed before they wrote a row of it, again and "
                    "again; callboard resume has it go on",
                    run.run,
                )
            elif not run.why_not:
                self._waiting.append(run)
                self._begun[run.run] = -1.0
                self._running.expect(info)

    async def work(self) -> None:
        """Have them go on; returns when each has begun."""
        began = trio.current_time()
        limiter = trio.CapacityLimiter(AT_ONCE)
        waiting = sorted(self._waiting, key=lambda run: (run.sign, run.began))
        async with trio.open_nursery() as nursery:
            for _, same in groupby(waiting, key=lambda run: run.sign):
                of_one = list(same)
                for place in range(0, len(of_one), SEVERAL):
                    for taken in await self._taken(of_one[place : place + SEVERAL]):
                        if taken.asked:
                            self._sleeps_on(taken)
                            continue
                        await limiter.acquire_on_behalf_of(taken)
                        nursery.start_soon(self._go_on, taken, limiter)
        if waiting:
            seconds = trio.current_time() - began
            log.info("%d runs of servers that were killed go on (%.1f s)", len(waiting), seconds)
            await trio.sleep(WELL_AFTER)
            for run in waiting:
                kept = self._root.kept.get(run.run)
                if kept is not None:
                    kept.is_well()

    async def _taken(self, runs: Sequence[Interrupted]) -> list[Taken]:
        try:
            taken, failed = await take_several(self._root, runs)
        except CallboardError as error:  # the disk, or another server was faster
            taken, failed = [], {run.run: error for run in runs}
        there = {each.id for each in taken}
        for run in runs:
            if run.run not in there:
                why = failed.get(run.run) or Conflict(f"{run.run} goes on in another process")
                self._stays(run.run, why)
        return taken

    def _sleeps_on(self, taken: Taken) -> None:
        self._dormant.adopt(self._running.live[taken.id].info, taken)
        self._begun.pop(taken.id, None)
        self._waiting = [run for run in self._waiting if run.run != taken.id]

    async def _go_on(self, taken: Taken, limiter: trio.CapacityLimiter) -> None:
        info = self._running.live[taken.id].info
        try:
            await self._played(info, taken)
        except ShuttingDown:
            self._running.stays(taken.id)
        except Exception as error:  # one that can't go on must not keep the others from it
            if not isinstance(error, CallboardError):
                log.exception("%s could not go on", taken.id)
            self._kept[taken.id] = taken
            self._stays(taken.id, error)
        finally:
            self._waiting = [run for run in self._waiting if run.run != taken.id]
            limiter.release_on_behalf_of(taken)

    def _stays(self, run: str, why: Exception) -> None:
        self._begun.pop(run, None)
        log.warning("%s does not go on: %s", run, why)
        self._running.stays(run, why)

    async def _played(self, info: RunInfo, taken: Taken, *, with_changes: bool = False) -> SessionTurn | None:
        turn: SessionTurn | None = None
        self._begun[taken.id] = -1.0
        if taken.began.session is None:
            await self._running.go_on(info, taken, NO_HOOKS, with_changes=with_changes)
        else:
            turn = await self._sessions.go_on(info, taken, with_changes=with_changes)
        self._begun[taken.id] = trio.current_time()
        return turn

    async def resume(self, info: RunInfo, *, with_changes: bool = False) -> SessionTurn | None:
        """Go on with a run, as a caller wants it; returns when it has begun: its turn, if it is of a session.

        Raises:
            NotFound, Conflict: there is none such, or it is under way, or over.
            CannotGoOn, Damaged: it can't go on.
        """
        if self._dormant.has(info.run):
            await self._dormant.resume(info.run)
            return None
        if info.run in self._running.live:
            raise Conflict(f"{info.run} is under way")
        kept = self._kept.pop(info.run, None)
        taken = kept or await take(self._root, info.run)
        try:
            return await self._played(info, taken, with_changes=with_changes)
        except BaseException:  # whatever it was, this process still has it, and may try again
            self._begun.pop(info.run, None)
            self._kept[info.run] = taken
            raise
