"""Replays: a durable run is played once more by its rows, without a model, a tool or a process.

    replayed = replay("run-7f3a01bc")
    replayed.outcome.output         # what it was then
    replayed.differences            # where today's code and files come to something else than the rows say

What a replay needs are the rows and the agent's files. It has an event loop of its own, whose clock is set by the rows;
ids and times of events are those of the rows as well.
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
from ...work.journal.of_run import CannotGoOn, RunPast, past_of
from ...work.journal.prefix import Placed, began, written
from ..as_begun import loaded_of
from ..begin import begin
from ..durable import count_on
from ..loading import Hooks
from ..root import Root
from .fork import kept_rows
from .replaying.book import Book, Difference
from .replaying.clock import RowClock
from .replaying.effects import RowEffects
from .replaying.rows import ReplayedRun, ReplayedScopes
from .replaying.turnstile import Threads, Turnstile


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """How a replay ended.

    Attributes:
        outcome: of the run; `cancelled` if the rows had an end before.
        differences: where the replay has come to something else than the rows say, in its order.
        ended_early: the rows had an end before the run: it was interrupted, or goes on.
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
    """Play a durable run once more by its rows.

    It has an event loop of its own, in this thread: under trio, `await trio.to_thread.run_sync(callboard.replay, run)`.

    Args:
        run: its id.
        on_event: called with every event, in order.
        config_dir: where agents and settings live.
        with_changes: with the run's file as it is today, to see what it would come to by the same replies and results.

    Raises:
        NotFound: no such run is kept.
        CannotGoOn, Damaged, Unsupported: it can't be read, or not be replayed.
        UsageError, InvalidFile, ConfigError: its files are not those of an agent that could be played.
    """
    rows, _ = kept_rows(journal_dir(os.environ), run)
    _check(run, rows)
    past = _past(rows)
    clock = RowClock(0.0 if past is None else past.told.at / 1000)
    threads = Threads()
    given = (rows, past, clock, threads, on_event, config_dir, with_changes)
    return trio.run(_replay, *given, clock=clock, instruments=[threads])


def _check(run: str, rows: list[Placed]) -> None:
    first = began(rows)
    if first.functions:
        named = ", ".join(first.functions)
        raise Unsupported(f"{run} can't be replayed: it has tools that are functions of a Python program: {named}")
    for number, (_, row) in enumerate(rows, 1):
        if isinstance(row, Spoilt):
            raise CannotGoOn(f"{run} can't be replayed, as since row {number} not all of it is kept: {row.why}")


class _Past(msgspec.Struct, frozen=True):
    """So many of the first rows of a run, and what they say."""

    rows: int
    told: RunPast


def _past(rows: list[Placed]) -> _Past | None:
    """Of a fork with another state, all before that was set; None of others.

    Nodes that were under way there have begun again. What they did before belongs to the run that was forked, so the
    replay begins where the fork was begun.
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
        root.bus.now = lambda: started + timedelta(seconds=clock.current_time())
        after = 0 if past is None else past.rows
        book = Book(rows[after:], after)
        turnstile = Turnstile(book, clock, root.questions, threads)
        effects = RowEffects(book, turnstile)
        loaded = None if with_changes else loaded_of(first, root.config_dir, root.registry)
        hooks = Hooks(on_event=on_event, owner=first.owner, loaded=loaded, playback=effects)
        execution = begin(_request(first), hooks, root)
        effects.model = execution.started.model or effects.model
        told = None if past is None else past.told
        execution.kept = ReplayedRun(execution.id, book, told, with_changes=with_changes)
        execution.make_scopes = partial(ReplayedScopes, turnstile=turnstile)
        if told is not None:
            execution.resumed = RunResumed(life=1, rows=after, forked_from=first.forked_from, forked_at=first.forked_at)
            count_on(execution, told)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(turnstile.serve)
                outcome = await execution.run(on_event)
                nursery.cancel_scope.cancel()
        finally:
            clock.run_on()
    return Replayed(outcome=outcome, differences=tuple(book.differences), ended_early=turnstile.ended_early)


def _request(first: Began) -> RunRequest:
    """What the run was begun with, without what is in the rows, and what would be written."""
    request = first.request
    cwd = request.cwd if request.cwd is not None and Path(request.cwd).is_dir() else None
    return msgspec.structs.replace(request, cwd=cwd, answers=None, files=(), knowledge=(), attach=(), save=None)
