"""Replays: a durable run is executed again from its rows, without a model, a tool or a process.

    replayed = replay("run-7f3a01bc")
    replayed.outcome.output         # the output of the original run
    replayed.differences            # results of today's code and files that differ from the rows

A replay needs the rows and the agent's files. It has its own event loop, whose clock is set from the rows. Ids and
times of events are also taken from the rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec
import trio

from ....protocol.errors import Unsupported
from ....protocol.events import Event, RunResumed
from ....protocol.journal import Began, Spoilt, Told
from ....protocol.messages import StateSet
from ....protocol.outcome import Outcome
from ....protocol.requests import RunRequest
from ...io.directories import journal_dir
from ...io.tenancy import environ
from ...work.journal.fork_prefix import Placed, began, written
from ...work.journal.run_journal import CannotGoOn, RunPast, past_of
from ..begin import begin
from ..durable import count_on
from ..loading import RunCallbacks
from ..pinned_files import loaded_of
from ..root import Root
from .fork import stored_rows
from .replaying.effects import RowEffects
from .replaying.journal_index import Difference, JournalIndex
from .replaying.replayed_run import ReplayedRun, ReplayedScopes
from .replaying.sequencer import RowClock, Sequencer, Threads


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a replay.

    Attributes:
        outcome: outcome of the replay; `cancelled` if the rows ended first.
        differences: deviations of the replay from the rows, in order.
        ended_early: True if the rows ended before the run: it was interrupted, or is still under way.
    """

    outcome: Outcome
    differences: Sequence[Difference]
    ended_early: bool


def replay(
    run: str,
    *,
    on_event: Callable[[Event], None] | None = None,
    config_dir: str | os.PathLike[str] | None = None,
    with_changes: bool = False,
) -> Replayed:
    """Execute a durable run again from its rows.

    It blocks, with its own event loop in this thread; under trio use `await trio.to_thread.run_sync(callboard.replay,
    run)`.

    Args:
        run: id of the run.
        on_event: called with every event, in order.
        config_dir: the configuration directory.
        with_changes: use the run's file as it is today, to see its result for the same replies and tool results.

    Raises:
        NotFound: the run is not stored.
        CannotGoOn, Damaged, Unsupported: it cannot be read, or cannot be replayed.
        UsageError, InvalidFile, ConfigError: its files are not an agent that can be executed.
    """
    rows, _ = stored_rows(journal_dir(environ()), run)
    _check(run, rows)
    past = _past(rows)
    clock = RowClock(0.0 if past is None else past.told.at / 1000)
    threads = Threads()
    given = (rows, past, clock, threads, on_event, config_dir, with_changes)
    return trio.run(_replay, *given, clock=clock, instruments=[threads])


def _check(run: str, rows: list[Placed]) -> None:
    first = began(rows)
    # The functions are gone with the program; their effects on its memory can't be replayed from rows.
    if first.functions:
        named = ", ".join(first.functions)
        raise Unsupported(f"{run} can't be replayed: it has tools that are functions of a Python program: {named}")
    for number, (_, row) in enumerate(rows, 1):
        if isinstance(row, Spoilt):
            raise CannotGoOn(f"{run} can't be replayed, as since row {number} not all of it is kept: {row.why}")


class _Past(msgspec.Struct, frozen=True):
    """Number of first rows that are recovered instead of replayed, and the history in them."""

    rows: int
    told: RunPast


def _past(rows: list[Placed]) -> _Past | None:
    """Return the history of a fork with another state, up to the row that set it; None for other runs.

    Nodes that were under way at that row have started again. Their earlier work belongs to the original run, so the
    replay begins at the fork.
    """
    found = [
        place for place, (_, row) in enumerate(rows) if isinstance(row, Told) and isinstance(row.message, StateSet)
    ]
    if not found:
        return None
    before = rows[: found[-1] + 1]
    return _Past(len(before), past_of(written(before)))


async def _replay(
    rows: list[Placed],
    past: _Past | None,
    clock: RowClock,
    threads: Threads,
    on_event: Callable[[Event], None] | None,
    config_dir: str | os.PathLike[str] | None,
    with_changes: bool,
) -> Replayed:
    first = began(rows)
    async with Root(config_dir=config_dir) as root:
        started = datetime.fromtimestamp(first.wall, UTC)
        # Events show the times of the original run, by the clock that the rows set.
        root.bus.now = lambda: started + timedelta(seconds=clock.current_time())
        after = 0 if past is None else past.rows
        index = JournalIndex(rows[after:], after)
        sequencer = Sequencer(index, clock, root.kernel.questions, threads)
        effects = RowEffects(index, sequencer)
        loaded = None if with_changes else loaded_of(first, root.config_dir, root.registry)
        hooks = RunCallbacks(on_event=on_event, owner=first.owner, loaded=loaded, playback=effects)
        execution = begin(_request(first), hooks, root)
        effects.model = execution.started.model or effects.model
        told = None if past is None else past.told
        execution.kept = ReplayedRun(execution.id, index, told, with_changes=with_changes)
        execution.make_scopes = partial(ReplayedScopes, sequencer=sequencer)
        if told is not None:
            execution.resumed = RunResumed(life=1, rows=after, forked_from=first.forked_from, forked_at=first.forked_at)
            count_on(execution, told)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sequencer.serve)
                outcome = await execution.run(on_event)
                nursery.cancel_scope.cancel()
        finally:
            # A stopped clock would never reach the deadlines of the clean-up.
            clock.run_on()
    return Replayed(outcome=outcome, differences=tuple(index.differences), ended_early=sequencer.ended_early)


def _request(first: Began) -> RunRequest:
    """Return the run's request without the parts that are in its rows, and without files to write."""
    request = first.request
    # The directory may be gone by now.
    cwd = request.cwd if request.cwd is not None and Path(request.cwd).is_dir() else None
    return msgspec.structs.replace(request, cwd=cwd, answers=None, files=(), knowledge=(), attach=(), save=None)
