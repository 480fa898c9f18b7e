"""A decider is told its past: what it had been told in earlier lives of a durable run.

Nothing of what it says is done again. What is left at the end is what was still open when the process was killed: work
whose end it has not been told, timers, answers that work waits for, children and what they ask. The driver goes on with
that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...protocol.effects import Answer, Effect, Emit, Finish, InPlace, Reject, SetTimer, WhenIdle, Work
from ...protocol.journal import Told
from ...protocol.messages import FamilyCalled, Follows, FromBelow, Idle, Interrupted, TimerFired, WorkDone
from ..work.journal.family import FamilyLeft
from ..work.journal.of_run import CannotGoOn
from ..work.journal.scope import Player
from .deciding import Decider, Tape


class Gone(msgspec.Struct, frozen=True):
    """Work that had begun, with what the decider was told of its end, if it was, and its path."""

    work: Work
    end: WorkDone | None
    path: str


class Left(msgspec.Struct):
    """What is open.

    Attributes:
        work: by key, in the order in which it was wanted.
        in_place: such work.
        timers: by name, milliseconds of the run at which they fire.
        idle: what the decider calls it that no mail waits.
        asked: keys of work that has asked the decider; `answers`, what it has said to some of them.
        family: of a conversation, what is open between it and its children.
        finish: how it has ended.
        gone: work that had ended, in that order, if anybody wants to know.
    """

    work: dict[int, Work] = {}
    in_place: InPlace | None = None
    timers: dict[str, float] = {}
    idle: str | None = None
    asked: set[int] = set()
    answers: dict[int, Answer] = {}
    family: FamilyLeft = msgspec.field(default_factory=FamilyLeft)
    finish: Finish | None = None
    gone: list[Gone] | None = None

    def under_way(self, player: Player) -> list[Gone]:
        """What is still to be done of the work."""
        return [Gone(work, None, player.path_of(work)) for work in self.work.values()]


def fold(
    decider: Decider, player: Player, request: Any, tapes: Sequence[Tape] = (), gone: list[Gone] | None = None
) -> Left:
    """Tell a new decider its past, which is not empty.

    Args:
        request: what it would begin with now, where it is not kept as it follows from the past of those above.
        tapes: hear of the past as well.
        gone: see `Left`.

    Raises:
        CannotGoOn: it is the past of another. Then the whole run can't go on.
    """
    left = Left(gone=gone)
    try:
        _tell(decider, player, request, tapes, left)
    except CannotGoOn as error:
        player.refuse(error)
        raise
    return left


def _tell(decider: Decider, player: Player, request: Any, tapes: Sequence[Tape], left: Left) -> None:
    past = player.past
    decider.heard = False

    def told(message: Any, at: int, begins: bool = False) -> None:
        effects = decider.begin(message) if begins else decider.on(message)
        for tape in tapes:
            tape.wrote(message, effects)
        _take_up(left, player, effects, at)

    try:
        begun = past[0].message
        told(request if isinstance(begun, Follows) else begun, past[0].at, begins=True)
        for each in past[1:]:
            _fold(left, player, each, told)
    except CannotGoOn:
        raise
    except Exception as error:  # whatever it is: messages that do not fit must not become another run
        raise CannotGoOn(f"its rows are not those of what it would go on with: {error!r}") from error
    if left.finish is not None:
        for key in left.work:
            decider.on(Interrupted(key, seconds=0.0))
        left.work = {}


def _fold(left: Left, player: Player, each: Told, told: Callable[[Any, int], None]) -> None:
    message = each.message
    if isinstance(message, WorkDone):
        if left.in_place is not None and message.key == left.in_place.key:
            left.in_place = None
        elif message.key not in left.work:
            _be_idle(left, each, message, told)
        work = left.work.pop(message.key, None)
        if left.gone is not None and work is not None:
            left.gone.append(Gone(work, message, player.path_of(work)))
        left.asked.discard(message.key)
        left.answers.pop(message.key, None)
    elif isinstance(message, FamilyCalled):
        left.asked.add(message.key)
    elif isinstance(message, TimerFired):
        left.timers.pop(message.name, None)
    elif isinstance(message, Idle):
        left.idle = None
    elif isinstance(message, FromBelow):
        left.family.told(message)
    told(message, each.at)


def _be_idle(left: Left, each: Told, message: WorkDone, told: Callable[[Any, int], None]) -> None:
    """That no mail waited shows in the end of what was begun then (`Player.wrote`)."""
    name, left.idle = left.idle, None
    if name is not None:
        told(Idle(name), each.at)
    if left.in_place is None or left.in_place.key != message.key:
        raise CannotGoOn(f"its rows tell the end of work {message.key}, which it would not have begun")
    left.in_place = None


def _take_up(left: Left, player: Player, effects: Sequence[Effect], at: int) -> None:
    for effect in effects:
        if isinstance(effect, InPlace):
            left.in_place = effect
        elif isinstance(effect, Work):
            player.count(effect)
            left.work[effect.key] = effect
        elif isinstance(effect, Answer):
            left.answers[effect.key] = effect
        elif isinstance(effect, SetTimer):
            left.timers[effect.name] = at + effect.seconds * 1000
        elif isinstance(effect, WhenIdle):
            left.idle = effect.name
        elif isinstance(effect, Finish):
            left.finish = effect
        elif not isinstance(effect, Emit | Reject) and not left.family.wants(effect, at):
            raise CannotGoOn(f"it wants what can't be taken up again: {type(effect).__name__}")
