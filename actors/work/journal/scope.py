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
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from ....protocol.effects import Effect, InPlace, Work
from ....protocol.errors import CallboardError
from ....protocol.journal import (
    CAN_BE_KEPT,
    Answered,
    AnyRow,
    Asked,
    Intends,
    Noted,
    Told,
    decode_value,
)
from ....protocol.kernel.events import QuestionAnswered
from ....protocol.kernel.questions import Answer, Question
from ....protocol.messages import Follows, FromBelow, Idle, Interrupted, Letter, WorkDone
from ....supervisors.escalation import remembers
from .crossing import Crossing, Spent
from .of_run import Before, CannotGoOn, OfRun

if TYPE_CHECKING:
    from ....supervisors import Actor

T = TypeVar("T")
D = TypeVar("D")

_PLAIN = frozenset(kind for kind in CAN_BE_KEPT if kind is not Idle and not issubclass(kind, Follows))


class Scope:
    """See the module.

    Args:
        scopes: those of the run.
        path: below it; see `protocol/journal`.
        answered: work of this path has asked its decider in an earlier life, and only waits for the answer.
        ends: it is only to come to where it was, so that it can be told what had become of it, and does nothing more.

    Attributes:
        on_there: called when its first decider was told its past, with whether that had come to its end.
    """

    __slots__ = ("_before", "_drivers", "answered", "ends", "on_there", "path", "run", "scopes")

    def __init__(self, scopes: Scopes, path: str, *, answered: bool = False, ends: bool = False) -> None:
        self.run = run = scopes.run
        self.scopes = scopes
        self.path = path
        self.answered = answered
        self.ends = ends
        self.on_there: Callable[[bool], None] | None = None
        self._drivers = 0
        self._before = run.paths.pop(path, Before())

    def player(self) -> Player:
        """For a decider that is to be played by this actor: the next one."""
        self._drivers += 1
        if self._drivers == 1:
            return self.scopes.player(self, self.path, self._before.told)
        path = f"{self.path}:{self._drivers}"
        return self.scopes.player(self, path, self.run.paths.pop(path, Before()).told)

    def spent(self) -> list[Spent]:
        """The replies of models that its next decider, and all that works below that, had in earlier lives."""
        path = self.path if self._drivers == 0 else f"{self.path}:{self._drivers + 1}"
        return self.run.crossing.below(path)

    @property
    def has_past(self) -> bool:
        """Whether its first decider was told something in an earlier life."""
        return bool(self._before.told)

    async def noted(self, name: str, kind: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """What this comes to, which is found out once in all lives of the run."""
        known = self._take(lambda row: isinstance(row, Noted) and row.name == name)
        if isinstance(known, Noted):
            return decode_value(known.value, kind)
        value = await work()
        self.note(name, value)
        return value

    def note(self, name: str, value: object) -> None:
        """Keep what has been found out."""
        self.run.note(self.path, name, value)

    def ended(self, name: str) -> msgspec.Raw | None:
        """What an effect of this name had come to; None if that is not known.

        What was written before its end is settled by it: that it was about to begin, what was asked about it.
        """
        others = self._before.others
        for place, row in enumerate(others):
            if isinstance(row, Noted) and row.name == name:
                del others[: place + 1]
                return row.value
        return None

    def noted_below(self, name: str) -> Iterator[msgspec.Raw]:
        """What earlier lives have noted under this name, here and in all below that has not begun again yet."""
        below = f"{self.path}/" if self.path else ""
        paths = self.run.paths
        found = [self._before, *(paths[path] for path in paths if path.startswith((below, f"{self.path}:")))]
        return (row.value for each in found for row in each.others if isinstance(row, Noted) and row.name == name)

    async def intend(self, what: str, server: str = "", within: float | None = None) -> None:
        """The world is about to be changed: wait until that is on the disk. `within` and errors: `OfRun.barrier`."""
        self.run.relies = self.run.relies or bool(server)
        self.run.append(self.path, Intends(self.run.now, what, server))
        await self.run.barrier(within)

    def intended(self, what: str) -> int:
        """How often this may have been done to the world, without that its end is known."""
        return sum(isinstance(row, Intends) and row.what == what for row in self._before.others)

    def questions(self) -> list[Question]:
        """What this work had asked in earlier lives, and has not asked again."""
        return [row.question for row in self._before.others if isinstance(row, Asked)]

    def asked(self, question: Question) -> Question | Answer:
        """The answer that was given to this question; else the question under the id that it had, or with a new one.

        One that was left while nobody played the run counts if it was in time; it is kept now.
        """
        row = self._take(lambda row: isinstance(row, Asked) and row.question.text == question.text)
        if not isinstance(row, Asked):
            question = msgspec.structs.replace(question, id=question.id or self.run.new_question())
            self.run.append(self.path, Asked(self.run.now, question, time.time()))
            return question
        id, timeout = row.question.id, question.timeout
        found = self._take(lambda row: isinstance(row, Answered) and row.answer.question == id)
        if isinstance(found, Answered):
            return found.answer
        answer, at = self.run.answers.pop(id, (None, 0.0))
        if answer is not None and (timeout is None or at <= row.wall + timeout):
            self.answer(question, answer)
            return answer
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

    def player(self, scope: Scope, path: str, past: list[Told]) -> Player:
        """For the decider of this path, of an actor of this scope."""
        return Player(scope, path, past)

    def begun(self, actor: Actor, player: Player, work: Work, *, answered: bool = False) -> None:
        """This actor does this work. It has asked its decider already, if it is `answered`."""
        self._works[actor] = player, work
        if answered:
            self._answered.add(actor)

    def child(self, actor: Actor, path: str, *, ends: bool) -> Scope:
        """This actor is a child that an agent has spawned; see `Scope`."""
        scope = self._made[actor] = Scope(self, path, ends=ends)
        return scope

    def ended(self, actor: Actor) -> None:
        """It has ended."""
        self._works.pop(actor, None)
        self._made.pop(actor, None)

    def asked(self, actor: Actor, question: Question) -> Question | Answer:
        """See `Scope`."""
        left = len(self.run.answers)
        found = self.of(actor).asked(question)
        if isinstance(found, Answer) and len(self.run.answers) < left:  # nobody was there to tell it when it was given
            actor.emit(QuestionAnswered(value=found.value, by=found.by), id=found.question)
        return found

    def answer(self, actor: Actor, question: Question, answer: Answer) -> None:
        """See `Scope`."""
        self.of(actor).answer(question, answer)

    async def keep(self) -> None:
        """Wait until all that was written so far is on the disk. Raises as `RunJournal.barrier` does."""
        await self.run.barrier()


def here(me: Actor) -> Scope | None:
    """The part of a durable run that an actor is."""
    scopes = remembers.get()
    return scopes.of(me) if isinstance(scopes, Scopes) else None


def was_answered(me: Actor) -> bool:
    """Whether work of this actor has asked its decider in an earlier life, and only waits for the answer."""
    scope = here(me)
    return scope is not None and scope.answered


def played(me: Actor) -> float:
    """A clock for what an actor waits for: of a durable run the seconds that it was played, in all its lives."""
    scope = here(me)
    return trio.current_time() if scope is None else scope.run.now / 1000


async def noted(me: Actor, name: str, kind: type[T], work: Callable[[], Awaitable[T]]) -> T:
    """As `Scope.noted`; where nothing is kept, it is found out each time."""
    scope = here(me)
    return await work() if scope is None else await scope.noted(name, kind, work)


class Player:
    """What one decider was told, and is told. A tape (`engine/driver`).

    That no mail waits (`Idle`) is left out where it shows in what comes next: the end of what was begun then.

    Attributes:
        past: what it was told in earlier lives.
        lines_up: it is asked before work begins (`line_up`) and ends (`ends_in_turn`), and before the decider goes on
            without mail (`mail_first`); for replays, see `runs/rerun/replaying`.
    """

    __slots__ = ("_highest", "_idle", "_in_place", "_run", "_scope", "_uses", "past", "path")
    lines_up = False

    def __init__(self, scope: Scope, path: str, past: list[Told]) -> None:
        self.past = past
        self.path = path
        self._scope = scope
        self._run = scope.run
        self._idle: Idle | None = None
        self._in_place: int | None = None
        self._highest = -1
        self._uses: dict[int, int] = {}

    @property
    def scopes(self) -> Scopes:
        """Those of the run."""
        return self._scope.scopes

    @property
    def crossing(self) -> Crossing:
        """What went on between the deciders of the run in earlier lives."""
        return self._run.crossing

    @property
    def now(self) -> int:
        """Milliseconds that the run has been played."""
        return self._run.now

    @property
    def ends(self) -> bool:
        """See `Scope`."""
        return self._scope.ends

    def there(self, *, over: bool) -> None:
        """The decider is where it was in an earlier life; `over`: it had come to its end."""
        scope = self._scope
        if self.path == scope.path and scope.on_there is not None:
            on_there, scope.on_there = scope.on_there, None
            on_there(over)

    def refuse(self, error: CannotGoOn) -> None:
        """What was kept does not fit what is played; see `OfRun`."""
        self._run.refuse(error)

    def child(self, actor: Actor, id: str, *, ends: bool = False) -> Scope:
        """That of the child of this id, whose actor this is."""
        return self.scopes.child(actor, self.path_of_child(id), ends=ends)

    def path_of_child(self, id: str) -> str:
        """The path of the child of this id."""
        return f"{self.path}/{id}" if self.path else id

    def letters(self) -> list[Letter]:
        """Those that were sent to the decider and that it was not told of in an earlier life; once."""
        return self._run.crossing.letters.pop(self.path, [])

    def of(self, path: str) -> Player:
        """For a decider of this path that was played in earlier lives alone."""
        return Player(self._scope, path, self._run.paths.pop(path, Before()).told)

    def servers(self) -> tuple[str, ...]:
        """The MCP servers that the conversation has used in an earlier life, and that are others by now; once."""
        return tuple(self._run.crossing.servers.pop(self.path, ()))

    def heard_by(self, decider: D, tell: Callable[[FromBelow], None]) -> D:
        """What the driver, which `tell` tells something, talks to in the place of this decider: itself."""
        del tell
        return decider

    async def line_up(self, work: Work) -> None:
        """Wait until this work may begin."""

    async def ends_in_turn(self, ended: int | str) -> None:
        """Wait until the decider may be told of the end of its work of this key, or of its child of this id."""

    async def played_in_turn(self, ended: int | str, work: Awaitable[T]) -> T:
        """What that work comes to, or fails with, when its end may be told."""
        try:
            done = await work
        except CallboardError:
            await self.ends_in_turn(ended)
            raise
        await self.ends_in_turn(ended)
        return done

    async def mail_first(self, me: Actor, key: int | None) -> None:
        """Wait for mail that comes before work in place (this key), or before it is told that no mail waits (None)."""

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """The decider was told this, and said that."""
        kind = type(message)
        if self._idle is None and kind in _PLAIN:  # most of them
            self._run.told(self.path, message)
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
        self._append(message.emptied() if isinstance(message, Follows) else message)

    def _append(self, message: Any) -> None:
        run = self._run
        if type(message) in CAN_BE_KEPT:
            run.told(self.path, message)
        else:
            run.spoil(f"{type(message).__name__} is of a kind of run that can't go on yet")

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
        return f"{self.path}/{name}" if self.path else name
