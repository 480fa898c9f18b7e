"""Resumption of durable runs whose process was killed, at the start of a server or on request.

At its start, a server resumes the runs of earlier servers with the same configuration directory (`durable.resume:
auto`). Users resume runs of terminals themselves. Before the server listens, `expect` marks these runs as under way,
so followers wait for them. Then `work` resumes at most `AT_ONCE` at a time, because each must read and fold its rows.

A run that cannot be resumed stays interrupted, and the log has the reason. The same holds for a stuck run: its
processes died repeatedly before any of them stored a new row of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import trio

from ....protocol.control.resources import RunInfo
from ....protocol.errors import CallboardError, Conflict, ShuttingDown
from ....protocol.journal import BY_SERVER
from ...runs.durable import TakenRun, take, take_several
from ...runs.loading import NO_HOOKS
from .runs.running import Running

if TYPE_CHECKING:
    from ...runs.root import Root
    from ...runs.stored_runs import InterruptedRun
    from .logs.run_logs import RunLogs
    from .runs.dormant import Dormant
    from .sessions import HubSessions, SessionTurn

AT_ONCE = 20
"""Runs whose rows are read and folded concurrently."""

SEVERAL = 50
"""Runs of one dead process that are claimed in one step."""

ASKS_WITHIN = 5.0
"""Seconds for a resumed run to ask its questions again."""

WELL_AFTER = 300.0
"""Seconds after which a process is considered to have survived its resumed runs."""

log = logging.getLogger("callboard.control")


class Resuming:
    """Resumption of durable runs whose processes are dead.

    Args:
        root, logs, running: services of the hub.
        sessions: resumes turns of sessions.
        dormant: adopts runs that only wait for users.
    """

    def __init__(self, root: Root, logs: RunLogs, running: Running, sessions: HubSessions, dormant: Dormant) -> None:
        self._root = root
        self._logs = logs
        self._running = running
        self._sessions = sessions
        self._dormant = dormant
        self._waiting: list[InterruptedRun] = []
        self._kept: dict[str, TakenRun] = {}
        self._begun: dict[str, float] = {}  # time at which each resumed; -1 before that

    def settles(self, run: str) -> bool:
        """Return True while a run is about to resume, or may not yet have asked its questions again."""
        begun = self._begun.get(run)
        return begun is not None and (begun < 0 or trio.current_time() - begun < ASKS_WITHIN)

    @property
    def held(self) -> set[str]:
        """Ids of runs that this process has claimed but could not resume."""
        return set(self._kept)

    def expect(self) -> None:
        """Find the runs to resume automatically, and mark them as under way for followers."""
        home = str(self._root.config_dir)
        for run in list(self._logs.interrupted.values()):
            about, info = run.about, self._logs.past.get(run.run)
            if about is None or info is None or about.by != BY_SERVER or about.config_dir != home:
                continue
            if run.stuck:
                log.warning(
                    (
                        "%s is not resumed again, because the processes that resumed it were killed before it "
                        "made progress; to try once more: callboard resume"
                    ),
                    run.run,
                )
            elif not run.why_not:
                self._waiting.append(run)
                self._begun[run.run] = -1.0
                self._running.expect(info)

    async def work(self) -> None:
        """Resume the expected runs, wait `WELL_AFTER`, and record that this process has survived them.

        Returns at once if no run is expected.
        """
        began = trio.current_time()
        limiter = trio.CapacityLimiter(AT_ONCE)
        # By process (`sign`): the runs of one dead process are claimed in few steps, not one by one.
        waiting = sorted(self._waiting, key=lambda run: (run.sign, run.began))
        async with trio.open_nursery() as nursery:
            for _, same in groupby(waiting, key=lambda run: run.sign):
                of_one = list(same)
                for place in range(0, len(of_one), SEVERAL):
                    for taken in await self._taken(of_one[place : place + SEVERAL]):
                        # Such a run only waits for a user, so it stays unloaded until the answer arrives.
                        if taken.asked:
                            self._sleeps_on(taken)
                            continue
                        await limiter.acquire_on_behalf_of(taken)
                        nursery.start_soon(self._resume, taken, limiter)
        if waiting:
            seconds = trio.current_time() - began
            log.info("resumed %d runs of servers that were killed (%.1f s)", len(waiting), seconds)
            # Until then, a death of this process counts against all of them, because any of them may be its cause.
            await trio.sleep(WELL_AFTER)
            for run in waiting:
                kept = self._root.kept.get(run.run)
                if kept is not None:
                    kept.is_well()

    async def _taken(self, runs: Sequence[InterruptedRun]) -> list[TakenRun]:
        try:
            taken, failed = await take_several(self._root, runs)
        except CallboardError as error:  # a disk error, or another server has claimed them
            taken, failed = [], {run.run: error for run in runs}
        there = {each.id for each in taken}
        for run in runs:
            if run.run not in there:
                why = failed.get(run.run) or Conflict(f"{run.run} was resumed by another process")
                self._stays(run.run, why)
        return taken

    def _sleeps_on(self, taken: TakenRun) -> None:
        self._dormant.adopt(self._running.live[taken.id].info, taken)
        self._begun.pop(taken.id, None)
        self._waiting = [run for run in self._waiting if run.run != taken.id]

    async def _resume(self, taken: TakenRun, limiter: trio.CapacityLimiter) -> None:
        info = self._running.live[taken.id].info
        try:
            await self._played(info, taken)
        except ShuttingDown:
            self._running.stays(taken.id)
        except Exception as error:  # one failed run must not prevent the others
            if not isinstance(error, CallboardError):
                log.exception("%s could not be resumed", taken.id)
            self._kept[taken.id] = taken
            self._stays(taken.id, error)
        finally:
            self._waiting = [run for run in self._waiting if run.run != taken.id]
            limiter.release_on_behalf_of(taken)

    def _stays(self, run: str, why: Exception) -> None:
        self._begun.pop(run, None)
        log.warning("%s is not resumed: %s", run, why)
        self._running.stays(run, why)

    async def _played(self, info: RunInfo, taken: TakenRun, *, with_changes: bool = False) -> SessionTurn | None:
        turn: SessionTurn | None = None
        self._begun[taken.id] = -1.0
        if taken.began.session is None:
            await self._running.resume(info, taken, NO_HOOKS, with_changes=with_changes)
        else:
            turn = await self._sessions.resume(info, taken, with_changes=with_changes)
        self._begun[taken.id] = trio.current_time()
        return turn

    async def resume(self, info: RunInfo, *, with_changes: bool = False) -> SessionTurn | None:
        """Resume a run on request and return when it has begun: the turn of a run in a session, else None.

        Raises:
            NotFound, Conflict: the run does not exist; it is under way or over.
            CannotGoOn, Damaged: the run cannot be resumed.
        """
        if self._dormant.has(info.run):
            await self._dormant.resume(info.run)
            return None
        if info.run in self._running.live:
            raise Conflict(f"{info.run} is active and can't be resumed")
        kept = self._kept.pop(info.run, None)
        taken = kept or await take(self._root, info.run)
        try:
            return await self._played(info, taken, with_changes=with_changes)
        except BaseException:  # on any failure, this process keeps its claim and may try again
            self._begun.pop(info.run, None)
            self._kept[info.run] = taken
            raise
