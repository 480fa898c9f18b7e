"""Journal of one actor in a durable run: its rows of earlier incarnations, and the rows that it writes.

`scope_of` returns the scope of an actor; None in a run that is not durable. Most work needs no scope, so scopes are
created on demand.

When a run resumes, the bodies of unfinished work start from the beginning. A decider first replays its past, and
nothing that it had completed is executed again (`engine/driver`). A node's own code also runs from its beginning. It
gets its earlier findings (`noted`) and the answers to its questions (`asked`) from the rows, without repeating the
requests.
The outcome of a side effect may be unknown (`unknown_outcome`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from ....protocol.effects import AnswerChild, CancelChild, Effect, InPlace, Spawn, Work
from ....protocol.errors import CallboardError
from ....protocol.journal import CAN_BE_KEPT, Answered, AnyRow, Asked, Intends, MessageRow, Noted, decode_value
from ....protocol.kernel.events import QuestionAnswered
from ....protocol.kernel.messages import Message
from ....protocol.kernel.questions import Answer, Question
from ....protocol.messages import (
    ChildEnded,
    EscalationClosed,
    EscalationNoted,
    Follows,
    FromBelow,
    Idle,
    Interrupted,
    TeamMessage,
    WorkDone,
)
from ....supervisors.escalation import remembers
from .run_journal import CannotGoOn, EarlierRows, JournaledRun, ReplySpending, SharedState

if TYPE_CHECKING:
    from ....supervisors import Actor

T = TypeVar("T")
D = TypeVar("D")

_PLAIN = frozenset(kind for kind in CAN_BE_KEPT if kind is not Idle and not issubclass(kind, Follows))


class JournalScope:
    """Rows of one actor's path in a durable run.

    Args:
        scopes: scopes of the run.
        path: path below the run; see `protocol/journal`.
        answered: True if work of this path has asked its decider in an earlier incarnation, and only waits for the
            answer.
        ends: True if it only restores its state so that its end can be recorded, and executes nothing more.

    Attributes:
        on_there: called when its first decider has replayed its past, with True if that included the end.
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
        # Removed from `paths`, so that `noted_below` finds there only what has not begun again.
        self._before = run.paths.pop(path, EarlierRows())

    def player(self) -> JournalPlayer:
        """Return the player for the next decider of this actor."""
        self._drivers += 1
        # The first decider has the path of its actor; later ones get a suffix (`:2`).
        if self._drivers == 1:
            return self.scopes.player(self, self.path, self._before.told)
        path = f"{self.path}:{self._drivers}"
        return self.scopes.player(self, path, self.run.paths.pop(path, EarlierRows()).told)

    def spent(self) -> list[ReplySpending]:
        """Return the model replies of earlier incarnations to its next decider, and to everything below that."""
        path = self.path if self._drivers == 0 else f"{self.path}:{self._drivers + 1}"
        return self.run.shared.below(path)

    @property
    def has_past(self) -> bool:
        """True if its first decider has received a message in an earlier incarnation."""
        return bool(self._before.told)

    async def noted(self, name: str, kind: type[T], work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`, which is executed once in all incarnations of the run."""
        known = self._take(lambda row: isinstance(row, Noted) and row.name == name)
        if isinstance(known, Noted):
            return decode_value(known.value, kind)
        value = await work()
        self.note(name, value)
        return value

    def note(self, name: str, value: object) -> None:
        """Append a finding of the actor's own code to the journal, under a name."""
        self.run.note(self.path, name, value)

    def ended(self, name: str) -> msgspec.Raw | None:
        """Return the result of an effect of this name; None if it is not known.

        The effect's end settles the rows before it, such as its intent and the questions about it. They are dropped.
        """
        others = self._before.others
        for place, row in enumerate(others):
            if isinstance(row, Noted) and row.name == name:
                del others[: place + 1]
                return row.value
        return None

    def noted_below(self, name: str) -> Iterator[msgspec.Raw]:
        """Return the notes of this name from earlier incarnations, here and in all paths below that have not begun
        again."""
        below = f"{self.path}/" if self.path else ""
        paths = self.run.paths
        found = [self._before, *(paths[path] for path in paths if path.startswith((below, f"{self.path}:")))]
        return (row.value for each in found for row in each.others if isinstance(row, Noted) and row.name == name)

    async def intend(self, what: str, server: str = "", within: float | None = None) -> None:
        """Record that a side effect is about to happen, and wait until that is on the disk.

        `within` and errors: see `JournaledRun.barrier`.
        """
        self.run.relies = self.run.relies or bool(server)
        self.run.append(self.path, Intends(self.run.now, what, server))
        await self.run.barrier(within)

    def intended(self, what: str) -> int:
        """Return how many times this side effect may have happened without a known end."""
        return sum(isinstance(row, Intends) and row.what == what for row in self._before.others)

    def questions(self) -> list[Question]:
        """Return the questions of earlier incarnations that this work has not asked again."""
        return [row.question for row in self._before.others if isinstance(row, Asked)]

    def asked(self, question: Question) -> Question | Answer:
        """Return the answer to this question if there is one; otherwise the question with its old id, or with a new
        one.

        An answer that arrived while no process executed the run is used if it was in time; its row is written now.
        """
        # By the text: a question that is asked again has no id yet.
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
        # The remaining time: the clock of a question also runs while no process executes the run.
        if timeout is not None:
            timeout = max(0.0, timeout - (time.time() - row.wall))
        return msgspec.structs.replace(question, id=id, timeout=timeout)

    def answer(self, question: Question, answer: Answer) -> None:
        """Record the answer to a question, unless it is secret."""
        if not question.secret:
            self.run.append(self.path, Answered(self.run.now, answer))

    def _take(self, wanted: Callable[[AnyRow], bool]) -> AnyRow | None:
        others = self._before.others
        for place, row in enumerate(others):
            if wanted(row):
                return others.pop(place)
        return None


class Scopes:
    """Scopes of a run, by actor. An actor without a scope has that of the nearest actor above it.

    Args:
        run: the run.
        top: actor of the run.
    """

    def __init__(self, run: JournaledRun, top: Actor) -> None:
        self.run = run
        self._made: dict[Actor, JournalScope] = {top: JournalScope(self, "")}
        # Scopes of work are created in `of`, at the first use: most work has none.
        self._works: dict[Actor, tuple[JournalPlayer, Work]] = {}
        self._answered: set[Actor] = set()

    def inside(self, context: Context) -> Context:
        """Return a copy of `context` in which actors of this run find their journal scopes."""
        own = context.copy()
        own.run(remembers.set, self)
        return own

    def of(self, actor: Actor) -> JournalScope:
        """Return the scope of an actor of the run.

        Raises:
            CannotGoOn: the actor does not belong to the run.
        """
        each: Actor | None = actor
        while each is not None:
            if (made := self._made.get(each)) is not None:
                return made
            if (found := self._works.get(each)) is not None:
                player, work = found
                scope = self._made[each] = JournalScope(self, player.path_of(work), answered=each in self._answered)
                return scope
            each = each.parent
        raise CannotGoOn(f"{actor.path} does not belong to {self.run.rows.run}")

    def player(self, scope: JournalScope, path: str, past: list[MessageRow]) -> JournalPlayer:
        """Return the player for the decider of this path, of an actor of this scope."""
        return JournalPlayer(scope, path, past)

    def begun(self, actor: Actor, player: JournalPlayer, work: Work, *, answered: bool = False) -> None:
        """Register the actor that executes this work. With `answered` the work has already asked its decider."""
        self._works[actor] = player, work
        if answered:
            self._answered.add(actor)

    def child(self, actor: Actor, path: str, *, ends: bool) -> JournalScope:
        """Create the scope of an actor that is a spawned child; see `JournalScope`."""
        scope = self._made[actor] = JournalScope(self, path, ends=ends)
        return scope

    def ended(self, actor: Actor) -> None:
        """Remove the scope of an actor that has ended."""
        self._works.pop(actor, None)
        self._made.pop(actor, None)

    def asked(self, actor: Actor, question: Question) -> Question | Answer:
        """Record a question, or return its answer; see `JournalScope.asked`."""
        known = len(self.run.answers)
        found = self.of(actor).asked(question)
        if isinstance(found, Answer) and len(self.run.answers) < known:  # no process could report it when it was given
            actor.emit(QuestionAnswered(value=found.value, by=found.by), id=found.question)
        return found

    def answer(self, actor: Actor, question: Question, answer: Answer) -> None:
        """Record the answer to a question; see `JournalScope.answer`."""
        self.of(actor).answer(question, answer)

    async def keep(self) -> None:
        """Wait until everything appended so far is on the disk. Raises as `RunJournal.barrier` does."""
        await self.run.barrier()


def scope_of(me: Actor) -> JournalScope | None:
    """Return the scope of an actor of a durable run; None in other runs."""
    scopes = remembers.get()
    return scopes.of(me) if isinstance(scopes, Scopes) else None


def was_answered(me: Actor) -> bool:
    """Return True if this actor's work asked its decider in an earlier incarnation, and only waits for the answer."""
    scope = scope_of(me)
    return scope is not None and scope.answered


def played(me: Actor) -> float:
    """Return the clock for an actor's waits: in a durable run the seconds of execution in all incarnations."""
    scope = scope_of(me)
    return trio.current_time() if scope is None else scope.run.now / 1000


def noted(me: Actor, name: str, kind: type[T], work: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Return the result as `JournalScope.noted` does; in a run that is not durable, execute `work` each time."""
    scope = scope_of(me)
    return work() if scope is None else scope.noted(name, kind, work)


class JournalPlayer:
    """Recorder and source of one decider's messages. A tape (`engine/driver`).

    `Idle` (no mail waits) is not stored where the next row implies it: the end of the work that was begun then.

    Attributes:
        past: messages of earlier incarnations.
        lines_up: True if the player is asked before work begins (`line_up`), before its end is delivered
            (`ends_in_turn`), and before the decider continues without mail (`mail_first`). For replays, see
            `runs/rerun/replaying`.
    """

    __slots__ = ("_highest", "_idle", "_in_place", "_run", "_scope", "_uses", "past", "path")
    lines_up = False

    def __init__(self, scope: JournalScope, path: str, past: list[MessageRow]) -> None:
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
        """Scopes of the run."""
        return self._scope.scopes

    @property
    def shared(self) -> SharedState:
        """State between the run's deciders from earlier incarnations."""
        return self._run.shared

    @property
    def now(self) -> int:
        """Milliseconds for which the run has executed, in all incarnations."""
        return self._run.now

    @property
    def ends(self) -> bool:
        """True if the decider only restores its state; see `JournalScope`."""
        return self._scope.ends

    def there(self, *, over: bool) -> None:
        """Note that all messages of earlier incarnations are replayed; with `over` the decider's end was among them."""
        scope = self._scope
        if self.path == scope.path and scope.on_there is not None:
            on_there, scope.on_there = scope.on_there, None
            on_there(over)

    def refuse(self, error: CannotGoOn) -> None:
        """Report that the rows do not match the run; see `JournaledRun.refuse`."""
        self._run.refuse(error)

    def child(self, actor: Actor, id: str, *, ends: bool = False) -> JournalScope:
        """Create the scope of the child with this id, whose actor this is."""
        return self.scopes.child(actor, self.path_of_child(id), ends=ends)

    def path_of_child(self, id: str) -> str:
        """Return the journal path of the child with this id."""
        return f"{self.path}/{id}" if self.path else id

    def undelivered_messages(self) -> list[TeamMessage]:
        """Return the team messages that were sent to the decider and not delivered, once."""
        return self._run.shared.undelivered.pop(self.path, [])

    def of(self, path: str) -> JournalPlayer:
        """Return the player for a decider that only earlier incarnations executed, by its path."""
        return JournalPlayer(self._scope, path, self._run.paths.pop(path, EarlierRows()).told)

    def servers(self) -> tuple[str, ...]:
        """Return the MCP servers that the conversation used in an earlier incarnation, which have been restarted since,
        once."""
        return tuple(self._run.shared.servers.pop(self.path, ()))

    def heard_by(self, decider: D, tell: Callable[[FromBelow], None]) -> D:
        """Return the object that the driver uses as decider; here the decider itself. `tell` sends the driver a
        message."""
        del tell
        return decider

    async def line_up(self, work: Work) -> None:
        """Wait until this work may begin: in a durable run at once, because only a replay has a recorded order."""

    async def ends_in_turn(self, ended: int | str) -> None:
        """Wait until the end of the work with this key, or of the child with this id, may be delivered."""

    async def played_in_turn(self, ended: int | str, work: Awaitable[T]) -> T:
        """Return the result of the work, or raise its error, once its end may be delivered."""
        try:
            done = await work
        except CallboardError:
            await self.ends_in_turn(ended)
            raise
        await self.ends_in_turn(ended)
        return done

    async def mail_first(self, me: Actor, key: int | None) -> None:
        """Wait for mail that precedes work in place (with this key), or the report that no mail waits (None)."""

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """Record a message to the decider, with its effects."""
        kind = type(message)
        if self._idle is None and kind in _PLAIN:  # most messages
            self._run.append_message(self.path, message)
            return
        # The work is executed again, so its interruption must not be part of the past.
        if kind is Interrupted:
            return
        if kind is Idle:
            begun = next((effect.key for effect in effects if isinstance(effect, InPlace)), None)
            if begun is not None:
                self._idle, self._in_place = message, begun
                return
        elif self._idle is not None:
            idle, self._idle = self._idle, None
            # The end of that work implies the idle message, so only another message needs it stored.
            if not (isinstance(message, WorkDone) and message.key == self._in_place):
                self._append(idle)
        self._append(message.emptied() if isinstance(message, Follows) else message)

    def _append(self, message: Any) -> None:
        run = self._run
        if type(message) in CAN_BE_KEPT:
            run.append_message(self.path, message)
        else:
            run.spoil(f"the journal can't store messages of the type {type(message).__name__}")

    def count(self, work: Work) -> None:
        """Count a use of a work key. Most deciders give each work a key of its own, higher than all before."""
        if work.key > self._highest:
            self._highest = work.key
        else:
            self._uses[work.key] = self._uses.get(work.key, 1) + 1

    def path_of(self, work: Work) -> str:
        """Return the journal path of the decider's unfinished work with this key."""
        uses = self._uses.get(work.key, 1)
        name = f"{work.key}.{uses}" if uses > 1 else str(work.key)
        return f"{self.path}/{name}" if self.path else name


class OpenChild(msgspec.Struct):
    """Child that has not ended.

    Attributes:
        spawned: effect with which the conversation requested it.
        at: time of the request, in milliseconds of the run's execution.
        cancelled: True if it is to be interrupted.
    """

    spawned: Spawn
    at: int
    cancelled: bool = False


class OpenChildren(msgspec.Struct):
    """Children and questions of a conversation that are open at the end of the replay.

    Attributes:
        children: by id, in the order of their start; None for one that has ended.
        escalations: questions that the conversation knows and that are not closed, by its own ids for them.
        replies: its answers to some of them, by question id.
    """

    children: dict[str, OpenChild | None] = {}
    escalations: dict[str, EscalationNoted] = {}
    replies: dict[str, str | list[str]] = {}

    def on_message(self, message: Message) -> None:
        """Update the open children and questions by a replayed message to the conversation."""
        if isinstance(message, ChildEnded):
            self.children[message.record.id] = None
        elif isinstance(message, EscalationNoted):
            self.escalations[message.id] = message
        elif isinstance(message, EscalationClosed):
            closed = self.escalations.pop(message.id, None)
            if closed is not None:
                self.replies.pop(closed.question.id, None)

    def on_effect(self, effect: Effect, at: int) -> bool:
        """Process an effect of the conversation. Return True if it concerns children."""
        if isinstance(effect, Spawn):
            self.children[effect.id] = OpenChild(effect, at)
        elif isinstance(effect, CancelChild):
            begun = self.children.get(effect.id)
            if begun is not None:
                begun.cancelled = True
        elif isinstance(effect, AnswerChild):
            self.replies[effect.question] = effect.value
        else:
            return False
        return True
