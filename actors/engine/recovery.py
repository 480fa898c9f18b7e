"""Recovery of a decider: replays the messages that the journal stored in earlier incarnations of a durable run.

Replay carries out no effect. It only collects the state that was open when the process died: work without an end
message, timers, answers that work waits for, children and their questions. The driver resumes from that collection.

Replay is valid only if the decider returns the same effects as before. A row that does not fit refuses the run with
`CannotGoOn`: the end of work that the decider did not start, or an effect that cannot be resumed. A guess could
turn the rest into a different run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...protocol.effects import AnswerCall, Effect, Emit, Finish, InPlace, Reject, SetTimer, WhenIdle, Work
from ...protocol.journal import Told
from ...protocol.messages import FamilyCalled, Follows, FromBelow, Idle, Interrupted, TimerFired, WorkDone
from ..work.journal.actor_journal import JournalPlayer, OpenChildren
from ..work.journal.run_journal import CannotGoOn
from .interfaces import Decider, Tape


class EarlierWork(msgspec.Struct, frozen=True):
    """Work that started in an earlier incarnation.

    Attributes:
        end: the message about its end that the decider received, or None.
        path: its path in the journal.
    """

    work: Work
    end: WorkDone | None
    path: str


class OpenWork(msgspec.Struct):
    """State that the driver needs to resume a decider after replay.

    Attributes:
        work: work without an end message, by key, in the order of the decider's effects.
        in_place: work in place without an end message.
        timers: by name, the time at which each fires, in milliseconds of the run.
        idle: the name of a pending `WhenIdle`.
        asked: keys of work that has asked the decider.
        answers: the decider's answers to some of these.
        family: of a conversation, open children and their questions.
        finish: the decider's end.
        gone: work that had ended, in that order; None if the caller does not need it.
    """

    work: dict[int, Work] = {}
    in_place: InPlace | None = None
    timers: dict[str, float] = {}
    idle: str | None = None
    asked: set[int] = set()
    answers: dict[int, AnswerCall] = {}
    family: OpenChildren = msgspec.field(default_factory=OpenChildren)
    finish: Finish | None = None
    gone: list[EarlierWork] | None = None

    def under_way(self, player: JournalPlayer) -> list[EarlierWork]:
        """Return the work that must be started again."""
        return [EarlierWork(work, None, player.path_of(work)) for work in self.work.values()]


def fold(
    decider: Decider,
    player: JournalPlayer,
    request: Any,
    tapes: Sequence[Tape] = (),
    gone: list[EarlierWork] | None = None,
) -> OpenWork:
    """Replay a decider's journal, which is not empty, into a new decider.

    Args:
        request: the current request, used where the journal omits it because it follows from a parent's journal.
        tapes: record the replayed messages as well.
        gone: list that receives the work that had ended; see `OpenWork`.

    Raises:
        CannotGoOn: the rows do not fit this decider. The whole run is then refused, not only this decider.
    """
    left = OpenWork(gone=gone)
    try:
        _replay(decider, player, request, tapes, left)
    except CannotGoOn as error:
        player.refuse(error)
        raise
    return left


def _replay(decider: Decider, player: JournalPlayer, request: Any, tapes: Sequence[Tape], left: OpenWork) -> None:
    past = player.past
    # The events of these messages were emitted by an earlier incarnation.
    decider.heard = False

    def apply(message: Any, at: int, begins: bool = False) -> None:
        effects = decider.begin(message) if begins else decider.on(message)
        for tape in tapes:
            tape.wrote(message, effects)
        _take_up(left, player, effects, at)

    try:
        begun = past[0].message
        apply(request if isinstance(begun, Follows) else begun, past[0].at, begins=True)
        for each in past[1:]:
            _fold(left, player, each, apply)
    except CannotGoOn:
        raise
    except Exception as error:  # any error: rows that do not fit must not become a different run
        raise CannotGoOn(f"its rows are not those of what it would go on with: {error!r}") from error
    # The process died between `Finish` and the end of the interrupted work, so no row records these interruptions.
    if left.finish is not None:
        for key in left.work:
            decider.on(Interrupted(key, seconds=0.0))
        left.work = {}


def _fold(left: OpenWork, player: JournalPlayer, each: Told, apply: Callable[[Any, int], None]) -> None:
    message = each.message
    if isinstance(message, WorkDone):
        if left.in_place is not None and message.key == left.in_place.key:
            left.in_place = None
        elif message.key not in left.work:
            _be_idle(left, each, message, apply)
        work = left.work.pop(message.key, None)
        if left.gone is not None and work is not None:
            left.gone.append(EarlierWork(work, message, player.path_of(work)))
        left.asked.discard(message.key)
        # The work has ended, so no one awaits this answer any more.
        left.answers.pop(message.key, None)
    elif isinstance(message, FamilyCalled):
        left.asked.add(message.key)
    elif isinstance(message, TimerFired):
        left.timers.pop(message.name, None)
    elif isinstance(message, Idle):
        left.idle = None
    elif isinstance(message, FromBelow):
        left.family.on_message(message)
    apply(message, each.at)


def _be_idle(left: OpenWork, each: Told, message: WorkDone, apply: Callable[[Any, int], None]) -> None:
    """Restore an `Idle` message that the journal omits.

    `JournalPlayer.wrote` drops `Idle` when the next row is the end of the in-place work that it started.
    """
    name, left.idle = left.idle, None
    if name is not None:
        apply(Idle(name), each.at)
    if left.in_place is None or left.in_place.key != message.key:
        raise CannotGoOn(f"its rows tell the end of work {message.key}, which it would not have begun")
    left.in_place = None


def _take_up(left: OpenWork, player: JournalPlayer, effects: Sequence[Effect], at: int) -> None:
    for effect in effects:
        if isinstance(effect, InPlace):
            left.in_place = effect
        elif isinstance(effect, Work):
            player.count(effect)
            left.work[effect.key] = effect
        elif isinstance(effect, AnswerCall):
            left.answers[effect.key] = effect
        elif isinstance(effect, SetTimer):
            # Absolute, so that the resumed timer fires after its remaining time and not after the whole one.
            left.timers[effect.name] = at + effect.seconds * 1000
        elif isinstance(effect, WhenIdle):
            left.idle = effect.name
        elif isinstance(effect, Finish):
            left.finish = effect
        elif not isinstance(effect, Emit | Reject) and not left.family.on_effect(effect, at):
            raise CannotGoOn(f"it wants what can't be taken up again: {type(effect).__name__}")
