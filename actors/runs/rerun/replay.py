"""Replays: a durable run is executed again from its rows, without a model, a tool or a process.

    replayed = replay("run-7f3a01bc")
    replayed.outcome.output         # the output of the original run
    replayed.differences            # results of today's code and files that differ from the rows

A replay needs the rows and the agent's files. It has its own event loop, whose clock is set from the rows. Ids and
times of events are also taken from the rows.

`ReplayedRun` and the classes below it replace the journal of a durable run: they compare with the recorded rows instead
of writing rows. Deciders receive the messages of the rows, in the order in which the replay reaches them. Their states
therefore equal the original ones, whatever the replay produced. Work begins one by one, so that the order of events
does not depend on trio's scheduling, which is random.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import trio

from ....protocol.effects import Effect, Work
from ....protocol.errors import Unsupported
from ....protocol.events import Event, RunResumed
from ....protocol.journal import About, Answered, AnyRow, Asked, Began, MessageRow, Noted, Over, Spoilt, name_of_kind
from ....protocol.kernel.questions import Answer, Question
from ....protocol.messages import ChildEnded, FromBelow, Idle, PersonSays, StateSet, TeamMessage
from ....protocol.outcome import Outcome
from ....protocol.requests import RunRequest
from ...io.directories import journal_dir
from ...io.tenancy import environ
from ...work.journal.actor_journal import D, JournalPlayer, JournalScope, Scopes
from ...work.journal.fork_prefix import Placed, began, work_path, written
from ...work.journal.run_journal import CannotGoOn, JournaledRun, RunPast, is_of_files, past_of
from ..begin import begin
from ..durable import count_on
from ..loading import RunCallbacks
from ..pinned_files import loaded_of
from ..root import Root
from .fork import stored_rows
from .replaying.effects import RowEffects
from .replaying.journal_index import Difference, JournalIndex
from .replaying.sequencer import RowClock, Sequencer, Threads

if TYPE_CHECKING:
    from ....protocol.messages import Message
    from ....supervisors import Actor


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
            raise CannotGoOn(
                f"{run} can't be replayed, because its journal is incomplete from row {number} on: {row.why}"
            )


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
        place
        for place, (_, row) in enumerate(rows)
        if isinstance(row, MessageRow) and isinstance(row.message, StateSet)
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


NOTHING = About(target="", name="", prompt="", cwd="", config_dir="", owner="")
"""Empty summary: a replay is not listed."""


class UnstoredRows:
    """Substitute for a `RunJournal` that stores nothing."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.rows = 0

    def append(self, actor: str, data: bytes) -> int:
        del actor, data
        return 0

    def set_summary(self, about: bytes, *, over: bool = False) -> None:
        pass

    def store_data(self, kind: str, key: str, data: bytes) -> None:
        pass

    @property
    def trouble(self) -> str:
        return ""

    def hurry(self) -> None:
        pass

    def stop(self) -> None:
        pass

    async def barrier(self) -> None:
        pass


class ReplayedRun(JournaledRun):
    """Run journal of a replay, which compares rows with the recorded ones.

    Args:
        past: history before the rows of the index; None if there is none.
        with_changes: use today's files instead of the pinned ones.
    """

    def __init__(self, run: str, index: JournalIndex, past: RunPast | None, *, with_changes: bool) -> None:
        super().__init__(UnstoredRows(run), NOTHING, past, lambda: False)
        self.index = index
        noted = {row.name: row.value for path, row in index.rows if not path and isinstance(row, Noted)}
        once = {**self.once, **noted}
        # These notes pin the files of the original run. With changes, today's files are used.
        self.once = {name: value for name, value in once.items() if not (with_changes and is_of_files(name))}

    async def is_over(self) -> bool:
        """Return False, so that the files of the original run are not removed."""
        return False

    def append(self, path: str, row: AnyRow) -> None:
        """Mark the recorded row as told, or note a difference."""
        # Other rows need no check here: `ReplayedScopes.asked` handles questions, and the index marks intents in
        # advance.
        if isinstance(row, Noted):
            self._came_to(path, row, lambda other: isinstance(other, Noted) and other.name == row.name)
        elif isinstance(row, Answered):
            id = row.answer.question
            self._came_to(path, row, lambda other: isinstance(other, Answered) and other.answer.question == id)
        elif isinstance(row, Over):
            self._came_to(path, row, lambda other: isinstance(other, Over))

    def note_once(self, name: str, value: Any) -> None:
        """Do nothing: the note is in the recorded rows."""

    def spoil(self, why: str) -> None:
        """Do nothing: no row is stored that could be incomplete."""

    def _came_to(self, path: str, row: AnyRow, wanted: Callable[[AnyRow], bool]) -> None:
        index = self.index
        place = index.find(path, wanted)
        if place is not None:
            index.mark_reached(place)
            was = index.row(place)
            if isinstance(row, Over) and isinstance(was, Over) and was.status != row.status:
                index.differs(place + 1, path, f"the run was {was.status}, and is {row.status} now")
        # After the last recorded row, everything is new and no difference.
        elif index.next is not None:
            index.differs(0, path, f"the rows do not have this result: {name_of_kind(row).lower()}")


class ReplayedScopes(Scopes):
    """Scopes of a replayed run.

    Attributes:
        actors: actors by path of their work or of their deciders.
    """

    def __init__(self, run: JournaledRun, top: Actor, sequencer: Sequencer) -> None:
        super().__init__(run, top)
        assert isinstance(run, ReplayedRun)
        self._index = run.index
        self._sequencer = sequencer
        self._current = top
        self.actors = sequencer.actors

    def of(self, actor: Actor) -> Any:
        # `super().of` may call `player`, which needs the actor and does not receive it.
        self._current = actor
        return super().of(actor)

    def player(self, scope: JournalScope, path: str, past: list[MessageRow]) -> JournalPlayer:
        self.actors[path] = self._current
        return ReplayedPlayer(scope, path, past, self._index, self._sequencer)

    def begun(self, actor: Actor, player: JournalPlayer, work: Work, *, answered: bool = False) -> None:
        super().begun(actor, player, work, answered=answered)
        self.actors[player.path_of(work)] = actor

    def asked(self, actor: Actor, question: Question) -> Question | Answer:
        """Return the question with its recorded id."""
        path, index = self.of(actor).path, self._index
        place = index.find(path, lambda row: isinstance(row, Asked))
        if place is None:
            if index.next is not None:
                index.differs(0, path, f"the rows do not have this question: {question.text}")
            return msgspec.structs.replace(question, id=question.id or self.run.new_question())
        index.mark_reached(place)
        row = index.row(place)
        assert isinstance(row, Asked)
        if row.question.text != question.text:
            index.differs(place + 1, path, f"it asked {row.question.text!r}, and asks {question.text!r} now")
        self._sequencer.open[row.question.id] = path
        return msgspec.structs.replace(question, id=row.question.id)

    def answer(self, actor: Actor, question: Question, answer: Answer) -> None:
        if not question.secret:
            self.run.append(self.of(actor).path, Answered(0, answer))


class ReplayedPlayer(JournalPlayer):
    """Journal player of a replay: it passes the recorded messages to its decider, in the order of the rows."""

    __slots__ = ("_index", "_recorded", "_sequencer")
    lines_up = True

    def __init__(
        self, scope: JournalScope, path: str, past: list[MessageRow], index: JournalIndex, sequencer: Sequencer
    ) -> None:
        super().__init__(scope, path, past)
        self._index = index
        self._sequencer = sequencer

    def heard_by(self, decider: D, tell: Callable[[FromBelow], None]) -> D:
        """Wrap the decider, so that it receives the recorded messages."""
        self._sequencer.senders[self.path] = tell
        self._recorded = _RecordedDecider(decider, self.path, self._index, self._sequencer, folds=bool(self.past))
        return cast("D", self._recorded)

    def there(self, *, over: bool) -> None:
        self._recorded.folds = False
        super().there(over=over)

    async def line_up(self, work: Work) -> None:
        """Wait until this work may begin."""
        await self._sequencer.line_up(self.path_of(work))

    async def ends_in_turn(self, ended: int | str) -> None:
        """Wait until the row with this end is next; if no row has it, wait for the end of the rows."""
        index = self._index
        if isinstance(ended, int):
            place = index.end_of(work_path(self.path, ended))
        else:
            place = index.find(self.path, lambda row: isinstance(row, MessageRow) and _is_of_child(row.message, ended))
        if place is None and not index.is_over:
            await trio.sleep_forever()
        elif place is not None and not index.is_given(place):
            index.take(place)
            await self._sequencer.take(place)

    async def mail_first(self, me: Actor, key: int | None) -> None:
        """Wait until mail has arrived that the decider had received by then; see `JournalIndex.is_due`."""
        await self._sequencer.wait_for(lambda: me.has_mail or not self._index.is_due(self.path, key))

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """Do nothing: a replay stores no rows."""


def _is_of_child(message: Any, id: str) -> bool:
    return isinstance(message, ChildEnded) and message.record.id == id


class _RecordedDecider:
    """Wrapper of a decider that replaces each message by the recorded one.

    Attributes:
        folds: True during recovery of the history, whose messages are recorded ones already.
    """

    def __init__(self, decider: Any, path: str, index: JournalIndex, sequencer: Sequencer, *, folds: bool) -> None:
        self.folds = folds
        self._decider = decider
        self._path = path
        self._index = index
        self._sequencer = sequencer

    @property
    def heard(self) -> bool:
        return bool(self._decider.heard)

    @heard.setter
    def heard(self, heard: bool) -> None:
        self._decider.heard = heard

    def begin(self, request: Any) -> list[Effect]:
        told = request if self.folds else self._index.message(self._path, request)
        effects: list[Effect] = self._decider.begin(told)
        return effects

    def on(self, message: Message) -> list[Effect]:
        told: Message = message
        # The order of messages from other actors is not fixed by the sequencer, so they may have to wait for their
        # rows.
        by_others = isinstance(message, FromBelow | TeamMessage | PersonSays)
        if by_others and not self.folds and self._sequencer.holds(self._path, message):
            return []
        if not self.folds and (not isinstance(message, Idle) or self._is_next(message)):
            told = self._index.message(self._path, message)
        effects: list[Effect] = self._decider.on(told)
        return effects

    def remembers(self) -> Any:
        return self._decider.remembers()

    def _is_next(self, message: Idle) -> bool:
        """Return whether the rows record this `Idle` message, which usually they do not."""
        place = self._index.find(self._path, lambda row: isinstance(row, MessageRow))
        row = None if place is None else self._index.row(place)
        return isinstance(row, MessageRow) and row.message == message
