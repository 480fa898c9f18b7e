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
from ....protocol.events import Event
from ....protocol.journal import Began, Definition, Spoilt, Told
from ....protocol.messages import StateSet
from ....protocol.outcome import Outcome
from ....protocol.requests import RunRequest
from ...io.directories import journal_dir
from ...work.journal.of_run import CannotGoOn
from ...work.journal.prefix import Placed, began
from ..as_begun import loaded_of
from ..begin import begin
from ..loading import Hooks
from ..root import Root
from .fork import kept_rows
from .replaying.book import Book, Difference
from .replaying.clock import RowClock
from .replaying.effects import RowEffects
from .replaying.rows import ReplayedRun, ReplayedScopes
from .replaying.turnstile import Turnstile


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
    clock = RowClock()
    return trio.run(_replay, rows, clock, on_event, config_dir, with_changes, clock=clock)


def _check(run: str, rows: list[Placed]) -> None:
    first = began(rows)
    definition = first.definition
    if first.functions:
        named = ", ".join(first.functions)
        raise Unsupported(f"{run} can't be replayed: it has tools that are functions of a Python program: {named}")
    if isinstance(definition, Definition) and definition.dialect == "workflow":
        raise Unsupported(f"{run} can't be replayed: it is of a workflow, which can't be yet")
    for number, (_, row) in enumerate(rows, 1):
        if isinstance(row, Spoilt):
            raise CannotGoOn(f"{run} can't be replayed, as since row {number} not all of it is kept: {row.why}")
        if isinstance(row, Told) and isinstance(row.message, StateSet):
            raise Unsupported(f"{run} can't be replayed: it is a fork with another state, which can't be yet")


async def _replay(
    rows: list[Placed],
    clock: RowClock,
    on_event: Callable[[Event], None] | None,
    config_dir: str | os.PathLike[str] | None,
    with_changes: bool,
) -> Replayed:
    first = began(rows)
    async with Root(config_dir=config_dir) as root:
        started = datetime.fromtimestamp(first.wall, UTC)
        root.bus.now = lambda: started + timedelta(seconds=clock.current_time())
        book = Book(rows)
        turnstile = Turnstile(book, clock, root.questions)
        effects = RowEffects(book, turnstile)
        loaded = None if with_changes else loaded_of(first, root.config_dir, root.registry)
        hooks = Hooks(on_event=on_event, owner=first.owner, loaded=loaded, playback=effects)
        execution = begin(_request(first), hooks, root)
        effects.model = execution.started.model or effects.model
        execution.kept = ReplayedRun(execution.id, book, with_changes=with_changes)
        execution.make_scopes = partial(ReplayedScopes, turnstile=turnstile)
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
