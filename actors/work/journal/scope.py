"""A part of a durable run: what an actor of it has written, and writes.

Whoever does work in a run finds the scope of its actor by `here`; None in a run that is not durable. Most work asks for
none, so it is made when it is asked for.

When a run goes on, the bodies of work that was under way begin anew. A decider is told its past first, and what it had
done by then is not done again (`engine/past`). A node's own code runs from its beginning, and gets what it had found
out (`noted`), and the answers to what it had asked (`asked`), without a request. What it was about to do to the world
may have been done (`unknown`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ....protocol.effects import Effect, InPlace, Work
from ....protocol.journal import (
    CAN_BE_KEPT,
    Answered,
    AnyRow,
    Asked,
    Intends,
    Noted,
    Told,
    decode_value,
    encode_value,
)
from ....protocol.kernel.questions import Answer, Question
from ....protocol.messages import Idle, Interrupted, MapBegun, WorkDone
from ....supervisors.escalation import remembers
from .of_run import Before, CannotGoOn, OfRun

if TYPE_CHECKING:
    from ....supervisors import Actor

T = TypeVar("T")
D = TypeVar("D")

_PLAIN = CAN_BE_KEPT - {Idle, MapBegun}

FOLLOWS = (MapBegun,)
"""What deciders begin with that is kept empty, since it is known when they begin again, and large."""


class Scope:
    """See the module.

    Args:
        scopes: those of the run.
        path: below it; see `protocol/journal`.
        answered: work of this path has asked its decider in an earlier life, and only waits for the answer.
    """

    __slots__ = ("_before", "_drivers", "_scopes", "answered", "path", "run")

    def __init__(self, scopes: Scopes, path: str, *, answered: bool = False) -> None:
        self.run = run = scopes.run
        self._scopes = scopes
        self.path = path
        self.answered = answered
        self._drivers = 0
        self._before = run.paths.pop(path, Before())

    def player(self) -> Player:
        """For a decider that is to be played by this actor: the next one."""
        self._drivers += 1
        if self._drivers == 1:
            return self._scopes.player(self.path, self._before.told)
        path = f"{self.path}:{self._drivers}"
        return self._scopes.player(path, self.run.paths.pop(path, Before()).told)

    async def noted(self, name: str, kind: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """What this comes to, which is found out once in all lives of the run."""
        known = self._take(lambda row: isinstance(row, Noted) and row.name == name)
        if isinstance(known, Noted):
            return decode_value(known.value, kind)
        value = await work()
        self.run.append(self.path, Noted(self.run.now, name, encode_value(value)))
        return value

    async def intend(self, what: str) -> None:
        """The world is about to be changed: wait until that is on the disk. Raises as `RunJournal.barrier` does."""
        self.run.append(self.path, Intends(self.run.now, what))
        await self.run.barrier()

    @property
    def unknown(self) -> int:
        """How often the world may have been changed by this work, without that its end is known."""
        return sum(isinstance(row, Intends) for row in self._before.others)

    def asked(self, question: Question) -> Question | Answer:
        """The answer that was given to this question; else the question under the id that it had, or with a new one."""
        row = self._take(lambda row: isinstance(row, Asked) and row.question.text == question.text)
        if not isinstance(row, Asked):
            question = msgspec.structs.replace(question, id=question.id or self.run.new_question())
            self.run.append(self.path, Asked(self.run.now, question, time.time()))
            return question
        id, timeout = row.question.id, question.timeout
        found = self._take(lambda row: isinstance(row, Answered) and row.answer.question == id)
        if isinstance(found, Answered):
            return found.answer
        if timeout is not None:
            timeout = max(0.0, timeout - (time.time() - row.wall))
        return msgspec.structs.replace(question, id=id, timeout=timeout)

    def answer(self, question: Question, answer: Answer) -> None:
        """It was answered."""
        if not question.secret:
            self.run.append(self.path, Answered(self.run.now, answer))

    def _take(self, wanted: Callable[[AnyRow], bool]) -> AnyRow | None:
        others = self._before.others
        for place, row in enumerate(others):
            if wanted(row):
                return others.pop(place)
        return None


class Scopes:
    """The scopes of a run, by actor: that of an actor without one is that of the next above it.

    Args:
        run: the run.
        top: its actor.
    """

    def __init__(self, run: OfRun, top: Actor) -> None:
        self.run = run
        self._made: dict[Actor, Scope] = {top: Scope(self, "")}
        self._works: dict[Actor, tuple[Player, Work]] = {}
        self._answered: set[Actor] = set()

    def inside(self, context: Context) -> Context:
        """The context of the run's actor, below another."""
        own = context.copy()
        own.run(remembers.set, self)
        return own

    def of(self, actor: Actor) -> Scope:
        """That of an actor of the run."""
        each: Actor | None = actor
        while each is not None:
            if (made := self._made.get(each)) is not None:
                return made
            if (found := self._works.get(each)) is not None:
                player, work = found
                scope = self._made[each] = Scope(self, player.path_of(work), answered=each in self._answered)
                return scope
            each = each.parent
        raise CannotGoOn(f"{actor.path} is no actor of {self.run.rows.run}")

    def player(self, path: str, past: list[Told]) -> Player:
        """For the decider of this path."""
        return Player(self, path, past)

    def begun(self, actor: Actor, player: Player, work: Work, *, answered: bool = False) -> None:
        """This actor does this work. It has asked its decider already, if it is `answered`."""
        self._works[actor] = player, work
        if answered:
            self._answered.add(actor)

    def ended(self, actor: Actor) -> None:
        """It has ended."""
        self._works.pop(actor, None)
        self._made.pop(actor, None)

    def asked(self, actor: Actor, question: Question) -> Question | Answer:
        """See `Scope`."""
        return self.of(actor).asked(question)

    def answer(self, actor: Actor, question: Question, answer: Answer) -> None:
        """See `Scope`."""
        self.of(actor).answer(question, answer)


def here(me: Actor) -> Scope | None:
    """The part of a durable run that an actor is."""
    scopes = remembers.get()
    return scopes.of(me) if isinstance(scopes, Scopes) else None


async def noted(me: Actor, name: str, kind: type[T], work: Callable[[], Awaitable[T]]) -> T:
    """As `Scope.noted`; where nothing is kept, it is found out each time."""
    scope = here(me)
    return await work() if scope is None else await scope.noted(name, kind, work)


class Player:
    """What one decider was told, and is told. A tape (`engine/driver`).

    That no mail waits (`Idle`) is left out where it shows in what comes next: the end of what was begun then.

    Attributes:
        past: what it was told in earlier lives.
        lines_up: work asks before it begins (`line_up`); for replays, see `playback/rows`.
    """

    __slots__ = ("_highest", "_idle", "_in_place", "_path", "_run", "_uses", "past", "scopes")
    lines_up = False

    def __init__(self, scopes: Scopes, path: str, past: list[Told]) -> None:
        self.past = past
        self.scopes = scopes
        self._run = scopes.run
        self._path = path
        self._idle: Idle | None = None
        self._in_place: int | None = None
        self._highest = -1
        self._uses: dict[int, int] = {}

    @property
    def now(self) -> int:
        """Milliseconds that the run has been played."""
        return self._run.now

    def heard_by(self, decider: D) -> D:
        """What the driver talks to in the place of this decider: itself."""
        return decider

    async def line_up(self, work: Work) -> None:
        """Wait until this work may begin."""

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """The decider was told this, and said that."""
        kind = type(message)
        if self._idle is None and kind in _PLAIN:  # most of them
            self._run.told(self._path, message)
            return
        if kind is Interrupted:
            return
        if kind is Idle:
            begun = next((effect.key for effect in effects if isinstance(effect, InPlace)), None)
            if begun is not None:
                self._idle, self._in_place = message, begun
                return
        elif self._idle is not None:
            idle, self._idle = self._idle, None
            if not (isinstance(message, WorkDone) and message.key == self._in_place):
                self._append(idle)
        self._append(MapBegun(items=[], state={}) if type(message) is MapBegun else message)

    def _append(self, message: Any) -> None:
        run = self._run
        if type(message) in CAN_BE_KEPT:
            run.told(self._path, message)
        else:
            run.spoil(f"{type(message).__name__} is of a kind of run that can't go on yet")

    def spoil(self, effect: Effect) -> None:
        """This is done by what can't go on yet."""
        self._run.spoil(f"{type(effect).__name__} is of a kind of run that can't go on yet")

    def count(self, work: Work) -> None:
        """The decider wants this done. Most give each work a key of its own, higher than those before."""
        if work.key > self._highest:
            self._highest = work.key
        else:
            self._uses[work.key] = self._uses.get(work.key, 1) + 1

    def path_of(self, work: Work) -> str:
        """That of work that is under way."""
        uses = self._uses.get(work.key, 1)
        name = f"{work.key}.{uses}" if uses > 1 else str(work.key)
        return f"{self._path}/{name}" if self._path else name
