"""Decider interface, the driver that executes a decider on the mail of an actor, and recovery from its journal.

Problem: a graph, a workflow or a conversation must be cancellable, durable and repeatable while its steps run
concurrently. A coroutine that awaits its steps cannot do that, because its state is on Python's stack and is lost
with the process. So the state is in a *decider* (a graph, map, workflow or conversation): a plain object,
synchronous and deterministic, without clock, randomness or I/O. It maps a message to a list of effects:

    decider.begin(request)  -> [effect, ...]
    decider.on(message)     -> [effect, ...]     until one of them is Finish

The driver is the other half, written once for all deciders. It takes messages from the mailbox of its actor, passes
them to the decider, and carries out the effects. A child actor executes each `Work`. The end of that actor is one
message in the driver's mailbox (`WorkDone` and its subclasses; `WorkFailed` if it crashed or was cancelled from
outside). So the list of messages determines the run: a fresh decider returns the same effects for it
(tests/support/second_decider.py).

Most work runs in child actors, so that it is visible, cancellable and concurrent. `InPlace` work runs in the task
of the driver's own actor: a model's reply, while the agent has nothing else to do. A child actor for each reply
would add a line to the tree that users watch. It would also move the request's events from the agent's path to one
below it. The result of `InPlace` work goes through the mailbox as well.

In a durable run the journal (`work/journal`) stores each message of the decider. In a later incarnation of the run,
`fold` replays those messages to a new decider and carries out no effect. It only collects the state that was open
when the process died (`OpenWork`), from which the driver resumes. Replay is valid only if the decider returns the same
effects as before. A row that does not fit refuses the run with `CannotGoOn`: the end of work that the decider did not
start, or an effect that cannot be resumed. A guess could turn the rest into a different run.

Invariants:

- One message at a time: `_step` never runs inside another step, whichever task calls it.
- Nothing outlives the driver. When the decider finishes, or a cancel from above interrupts the driver, it interrupts
  all running work. It waits for that work within the actor's clean-up deadline. The decider records the cost of that
  work (`Interrupted`).
- `deliver` (for parts of the decider's own actor, for example the end of a child agent) never blocks and never loses a
  message. It waits neither for work in place nor for the driver's task. After the end, the decider still records the
  message, marked `late`. So the parent knows an event before its consequences happen. For example, it knows that a
  child's question is closed before that child resumes without an answer.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec
import trio

from ...protocol.effects import AnswerCall, Effect, Emit, Finish, InPlace, Reject, SetTimer, WhenIdle, Work
from ...protocol.errors import CallboardError, WorkCancelled, WorkCrashed
from ...protocol.journal import MessageRow
from ...protocol.kernel.messages import Message
from ...protocol.messages import (
    CallAnswered,
    Failure,
    FamilyCalled,
    Follows,
    FromBelow,
    Idle,
    Interrupted,
    TimerFired,
    WorkDone,
    WorkFailed,
)
from ...supervisors import Actor, End
from ...supervisors.ref import crash_text
from ..work.journal.actor_journal import JournalPlayer, OpenChildren, scope_of
from ..work.journal.run_journal import CannotGoOn


class Decider(Protocol):
    """Synchronous, deterministic object that maps messages to effects; the module explains the contract.

    Attributes:
        heard: True if the run's events have a subscriber; if not, the decider may omit `Emit`.
    """

    heard: bool

    def begin(self, request: Any) -> list[Effect]:
        """Return the first effects of a new run."""

    def on(self, message: Message) -> list[Effect]:
        """Return the effects that follow from this message."""

    def remembers(self) -> Iterable[object]:
        """Return the objects that hold the decider's state; introspection measures their memory."""


class Tape(Protocol):
    """Recorder of one decider: its messages and the effects that it returns."""

    def wrote(self, message: Any, effects: list[Effect]) -> None:
        """Record that `message` (the request, for `begin`) produced these effects."""


Recorder: TypeAlias = Callable[[Decider, Callable[[], Decider]], Tape]
"""Factory of a tape for a decider; the second argument makes an equal decider."""

recorder: ContextVar[Recorder | None] = ContextVar("callboard_recorder", default=None)
"""Recorder for all deciders of this context and of the actors below: those of a run, or of a test."""


class BackgroundWork(Protocol):
    """Executor of effects that are not `Work`.

    Such an effect takes no time. Its outcome reaches the decider through `Driver.deliver`.
    """

    @property
    def executors(self) -> Mapping[type[Effect], Callable[[Any], None]]:
        """Synchronous executors, by type of effect."""

    def resume(self, player: JournalPlayer, left: OpenChildren, *, ends: bool) -> None:
        """Resume after recovery: the decider has replayed its journal, which leaves `left` open.

        Args:
            ends: the decider has finished, or the run is only recovered in order to end; start nothing new.
        """

    async def caught_up(self) -> None:
        """Wait until the children are recovered too, so that their outcomes can be sent to the decider."""


Performer: TypeAlias = Callable[["Actor", Any], Awaitable[WorkDone]]
"""Body of the child actor that executes one piece of work; called with the actor and the work."""


class _Wakeup(Message, frozen=True, tag="_Look"):
    """Wake-up for the driver's own task; carries no content and never reaches the decider."""


_WAKEUP = _Wakeup()


class Driver:
    """Runner of one decider, in the task of the actor that creates it.

    Args:
        me: the actor whose mailbox the driver reads and whose children execute the work.
        decider: the decider to run.
        performers: the body of the child actor, by type of work.
        limit: most child actors that run concurrently; further work waits in the order of the effects.
        fresh: makes an equal decider, for the `recorder`.
        background: executes effects that are not `Work`.
        tapes: further recorders of the decider.
        restore: awaited after recovery, with the work that ended in earlier incarnations.

    Attributes:
        player: the journal of this decider; None if the run is not durable.
    """

    def __init__(
        self,
        me: Actor,
        decider: Decider,
        performers: Mapping[type[Work], Performer],
        *,
        limit: int,
        fresh: Callable[[], Decider],
        background: BackgroundWork | None = None,
        tapes: Sequence[Tape] = (),
        restore: Callable[[JournalPlayer, list[EarlierWork]], Awaitable[None]] | None = None,
    ) -> None:
        self._me = me
        self._decider = decider
        self._performers = performers
        self._limit = max(1, limit)
        records, scope = recorder.get(), scope_of(me)
        self.player = None if scope is None else scope.player()
        if self.player is not None:
            self._decider = self.player.heard_by(decider, self.deliver)
        kept = () if self.player is None else (self.player,)
        # A rerun replays recorded results to this decider, so its messages must not be recorded a second time.
        played = self.player is not None and self.player.lines_up
        self._tapes = (*tapes, *kept) if records is None or played else (*tapes, *kept, records(decider, fresh))
        self._restore = restore
        self._left: OpenWork | None = None  # open work of an earlier incarnation
        self._ready: deque[Work] | None = None  # created on first use: an empty deque takes 760 bytes
        self._lanes: dict[str, deque[Work]] = {}  # waiting work of each busy lane
        self._running: dict[int, tuple[Actor, float]] = {}
        self._failed: dict[int, Actor] = {}  # the actors of failures that the decider has not received yet
        self._in_place: InPlace | None = None
        self._is_in_place = False
        self._background = background
        self._executors = {} if background is None else background.executors
        self._is_stepping = False
        self._idle: str | None = None
        self._finish: Finish | None = None
        self._error: Exception | None = None
        self._ending = False
        self._context = contextvars.copy_context()  # for work that a step in another task starts
        self._now = trio.lowlevel.current_clock().current_time  # `trio.current_time` without its two extra calls

    async def run(self, request: Any) -> Any:
        """Run the decider until it finishes, and return the result of its `Finish`.

        Raises:
            CallboardError: the decider finished with a failure.
            ShuttingDown: no new work is admitted.
            EndOfMail: the actor was asked to stop.
        """
        me, decider, receive = self._me, self._decider, self._me.receive
        decider.heard = me.stream.heard
        me.keeps = decider
        try:
            if self.player is not None and self.player.past:
                gone = await self._resume(self.player, request)
                if self._restore is not None:
                    await self._restore(self.player, gone)
            else:
                effects = decider.begin(request)
                for tape in self._tapes:
                    tape.wrote(request, effects)
                self._carry_out(effects)
            while self._finish is None:
                if self._in_place is not None:
                    await self._do_in_place(self._in_place)
                elif self._idle is not None and not me.has_mail:
                    await self._report_idle(self._idle)
                    continue
                message = await receive()
                if message is not _WAKEUP:
                    self._step(message)
                elif self._error is not None:
                    raise self._error
        finally:
            self._ending = True
            me.keeps = None
            if self._background is not None:
                self._take_remaining_mail()
            if self._running:
                await self._interrupt_all()
        if self._finish.failure is not None:
            raise self._finish.failure.restore()
        return self._finish.result

    async def _resume(self, player: JournalPlayer, request: Any) -> list[EarlierWork]:
        """Replay the journal into the decider and queue the work that was open; return the work that had ended."""
        gone: list[EarlierWork] = []
        others = [tape for tape in self._tapes if tape is not player]
        left = self._left = fold(self._decider, player, request, others, None if self._restore is None else gone)
        self._decider.heard = self._me.stream.heard
        self._in_place, self._idle, self._finish = left.in_place, left.idle, left.finish
        for name, at in left.timers.items():
            self._me.tell_later(max(0.0, (at - player.now) / 1000), TimerFired(name))
        for work in left.work.values():
            self._line_up(work)
        ends = self._finish is not None or player.ends
        if self._background is not None:
            self._is_stepping = True  # messages that arrive meanwhile wait in the mailbox
            self._background.resume(player, left.family, ends=ends)
            if ends:
                await self._background.caught_up()
            self._is_stepping = False
        player.there(over=self._finish is not None)
        # The actor was recovered only to be ended: its owner, which `there` has just notified, cancels it here.
        if self._finish is None and player.ends:
            self._is_stepping = True
            await trio.sleep_forever()
        if self._ready:
            self._begin_work()
        self._take_mail()  # current news (a restarted server) must reach the decider before work in place starts
        return gone

    def _step(self, message: Message) -> None:
        self._decider.heard = self._me.stream.heard
        self._is_stepping = True
        try:
            effects = self._decider.on(message)
            for tape in self._tapes:
                tape.wrote(message, effects)
            self._carry_out(effects)
        finally:
            self._is_stepping = False
        if type(message) is WorkFailed:
            self._failed.pop(message.key, None)

    def _step_after_work(self, message: Message) -> None:
        """Pass the end of work to the decider, in the task of the work that ended.

        A step does not block, so it runs in this task if the driver's task is parked in `receive`. Waking the
        driver would add one turn of trio's loop per piece of work, which costs as much as the step itself.
        """
        box = self._me.mailbox
        if box.reader is None or self._is_stepping:  # the driver is busy: older mail may wait, and order must hold
            box.put_own(message)
            if self._is_in_place and not self._is_stepping:
                self._take_mail()
            return
        try:
            self._step(message)
        except Exception as error:  # noqa: BLE001 - the driver's own task raises it
            self._error = error
        # `_needs_own_step`, inlined: every piece of work passes here.
        if self._finish is not None or self._in_place is not None or self._idle is not None or self._error is not None:
            box.put_own(_WAKEUP)
        else:
            box.earlier += 1  # count the message as received

    def deliver(self, message: FromBelow) -> None:
        """Pass a message to the decider, from any task, without blocking.

        Once the driver or its actor is ending, the decider still records the message, marked `late`.
        """
        if self._ending or self._me.stopping:
            message = msgspec.structs.replace(message, late=True)
        if self._ending:
            self._hand_over(message)
            return
        wakes = self._me.mailbox.reader is None and not (self._is_in_place or self._is_stepping or self._finish)
        self._step_after_work(message)
        if wakes:  # the caller's task could act on this before the driver reads its mail
            self._take_mail()
            if self._needs_own_step:
                self._me.mailbox.put_own(_WAKEUP)

    @property
    def _needs_own_step(self) -> bool:
        """True if the driver's own task has something to do."""
        return bool(self._finish or self._in_place or self._idle is not None or self._error)

    def _take_mail(self) -> None:
        """Run a step for each waiting message, in the caller's task, while the driver's own task is busy."""
        try:
            while self._error is None and self._finish is None and self._me.has_mail:
                message = self._me.take_mail()
                if message is not _WAKEUP:
                    self._step(message)
        except Exception as error:  # noqa: BLE001 - the driver's own task raises it
            self._error = error
            self._me.mailbox.put_own(_WAKEUP)

    def _take_remaining_mail(self) -> None:
        for message in list(self._me.mailbox.mail or ()):
            if isinstance(message, FromBelow):
                self._me.mailbox.take_out(message)
                self._hand_over(msgspec.structs.replace(message, late=True))

    def _hand_over(self, message: Message) -> list[Effect]:
        effects = self._decider.on(message)
        for tape in self._tapes:
            tape.wrote(message, effects)
        return effects

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Emit:
                about = self._me if effect.about is None else self._failed[effect.about]
                if about.stream.heard:
                    about.stream.publish(about, effect.event, id=effect.id)
            elif type(effect) in self._performers:
                self._queue(effect)
            elif type(effect) is AnswerCall:
                self._answer(effect)
            elif type(effect) is Finish:
                self._finish = effect
                return
            elif type(effect) is WhenIdle:
                self._idle = effect.name
            elif type(effect) is Reject:
                self._me.dead_letter(effect.message, effect.reason)
            elif type(effect) is SetTimer:
                self._me.tell_later(effect.seconds, TimerFired(effect.name))
            else:
                self._executors[type(effect)](effect)
        if self._ready:
            self._begin_work()

    def _answer(self, effect: AnswerCall) -> None:
        """Send the decider's answer to the work that asked, unless that work has ended meanwhile."""
        if effect.key in self._running:
            self._running[effect.key][0].ref.tell_nowait(CallAnswered(effect.value, effect.failed))

    async def _report_idle(self, name: str) -> None:
        me = self._me
        if me.root.pauses is not None:
            await me.root.pauses.passed(me)
            if me.has_mail:  # a message arrived during the pause
                return
        if self.player is not None:
            await self._mail_first(self.player, None)
        if me.has_mail or self._idle is None:
            return
        self._idle = None
        if me.mailbox.signals or me.mailbox.turn <= 0:  # `receive` must first handle a signal, or yield to other tasks
            me.mailbox.put_own(Idle(name))
            return
        me.mailbox.turn -= 1  # count it as received
        self._step(Idle(name))

    async def _mail_first(self, player: JournalPlayer, key: int | None) -> None:
        """In a rerun, wait for the mail that preceded this point in the recorded run."""
        if player.lines_up:
            await player.mail_first(self._me, key)
            if key is not None:
                self._take_mail()

    # --- work ---------------------------------------------------------------------------------------------

    def _queue(self, work: Any) -> None:
        if isinstance(work, InPlace):
            self._in_place = work
            return
        if self.player is not None:
            self.player.count(work)
        self._line_up(work)

    def _line_up(self, work: Work) -> None:
        """Queue the work: behind that of its lane if the lane is busy, else for `_begin_work`."""
        if work.lane is not None:
            if work.lane in self._lanes:
                self._lanes[work.lane].append(work)
                return
            self._lanes[work.lane] = deque()
        if self._ready is None:
            self._ready = deque()
        self._ready.append(work)

    def _begin_work(self) -> None:
        ready, running, now = self._ready, self._running, self._now()
        assert ready is not None
        plain = self.player is None and self._me.root.pauses is None  # `_perform` would add nothing
        while ready and len(running) < self._limit:
            work = ready.popleft()
            # "watched": a failure of the child must not end this actor; it becomes a message.
            body = self._performers[type(work)] if plain else self._perform
            ended = partial(self._ended, work)
            child = self._me.adopt(body, (work,), name=work.name, bond="watched", on_end=ended)
            running[work.key] = (child, now)
            if self.player is not None:
                self._keep(self.player, child, work)
            child.launch_soon(self._context)
            # The journal holds an answer that the work did not receive before its process died.
            if self._left is not None and work.key in self._left.answers:
                self._answer(self._left.answers.pop(work.key))

    def _keep(self, player: JournalPlayer, child: Actor, work: Work) -> None:
        """Register the actor with the durable run, so that its work finds its journal rows."""
        left = self._left
        player.scopes.begun(child, player, work, answered=left is not None and work.key in left.asked)
        if left is not None:
            left.asked.discard(work.key)

    async def _do_in_place(self, work: InPlace) -> None:
        self._in_place, self._is_in_place = None, True
        began = self._now()
        try:
            self._take_mail()
            if self.player is not None:
                await self._mail_first(self.player, work.key)
            message = await self._performers[type(work)](self._me, work)
        except CallboardError as error:
            message = WorkFailed(work.key, failure=Failure.of(error), seconds=self._now() - began)
        except trio.Cancelled:
            # The decider records the time (and so the cost) of the unfinished reply; no one will read the mailbox
            # after this.
            self._hand_over(Interrupted(work.key, seconds=self._now() - began))
            raise
        finally:
            self._is_in_place = False
        self._me.mailbox.put_own(message)

    async def _perform(self, child: Actor, work: Work) -> WorkDone:
        """Execute the work once neither this actor nor one above it is paused."""
        if child.root.pauses is not None:
            await child.root.pauses.passed(child)
        player, perform = self.player, self._performers[type(work)]
        if player is None or not player.lines_up:
            return await perform(child, work)
        await player.line_up(work)
        return await player.played_in_turn(work.key, perform(child, work))

    def _ended(self, work: Work, end: End) -> None:
        """Turn the end of a child actor into a message for the decider; called in the task that ends."""
        child, began = self._running.pop(work.key)
        if self.player is not None:
            self.player.scopes.ended(child)
        if work.lane is not None:
            self._pass_on(work.lane)
        # The driver is ending and reads no more mail, so the decider gets the message directly.
        if self._ending:
            self._hand_over(Interrupted(work.key, seconds=self._now() - began))
            return
        message: WorkDone = end.value
        if end.reason != "normal":
            self._failed[work.key] = child
            seconds, crashed = self._now() - began, end.error is not None
            message = WorkFailed(work.key, failure=Failure.of(_error_of(end)), crashed=crashed, seconds=seconds)
        self._step_after_work(message)

    def _pass_on(self, lane: str) -> None:
        """Start the next work of a lane, or free the lane."""
        waiting = self._lanes[lane]
        if waiting:
            if self._ready is None:
                self._ready = deque()
            self._ready.append(waiting.popleft())
        else:
            del self._lanes[lane]

    async def _interrupt_all(self) -> None:
        children = [child for child, _ in self._running.values()]
        self._ready = None
        for child in children:
            child.interrupt()
        with self._me.cleanup():
            for child in children:
                await child.wait_over()


def _error_of(end: End) -> CallboardError:
    if end.error is None:
        return WorkCancelled(f"it was {end.reason}")
    if isinstance(end.error, CallboardError):
        return end.error
    return WorkCrashed(crash_text(end.error))


async def drive(
    me: Actor,
    fresh: Callable[[], Decider],
    request: Any,
    performers: Mapping[type[Work], Performer],
    *,
    limit: int = 1_000,
) -> Any:
    """Run a new decider on the mail of `me`, and return its result; `Driver` documents arguments and errors."""
    return await Driver(me, fresh(), performers, limit=limit, fresh=fresh).run(request)


# --- recovery ---------------------------------------------------------------------------------------------


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
        answers: answers that the decider has given to work in `asked`, by the key of that work.
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
        """Return `work` with its journal paths: a resumed driver starts all of it again."""
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
        _track_effects(left, player, effects, at)

    try:
        begun = past[0].message
        apply(request if isinstance(begun, Follows) else begun, past[0].at, begins=True)
        for each in past[1:]:
            _replay_row(left, player, each, apply)
    except CannotGoOn:
        raise
    except Exception as error:  # any error: rows that do not fit must not become a different run
        raise CannotGoOn(
            f"its journal rows do not fit the agent, graph or workflow that would resume them: {error!r}"
        ) from error
    # The process died between `Finish` and the end of the interrupted work, so no row records these interruptions.
    if left.finish is not None:
        for key in left.work:
            decider.on(Interrupted(key, seconds=0.0))
        left.work = {}


def _replay_row(left: OpenWork, player: JournalPlayer, each: MessageRow, apply: Callable[[Any, int], None]) -> None:
    message = each.message
    if isinstance(message, WorkDone):
        if left.in_place is not None and message.key == left.in_place.key:
            left.in_place = None
        elif message.key not in left.work:
            _restore_idle(left, each, message, apply)
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


def _restore_idle(left: OpenWork, each: MessageRow, message: WorkDone, apply: Callable[[Any, int], None]) -> None:
    """Restore an `Idle` message that the journal omits.

    `JournalPlayer.wrote` drops `Idle` when the next row is the end of the in-place work that it started.
    """
    name, left.idle = left.idle, None
    if name is not None:
        apply(Idle(name), each.at)
    if left.in_place is None or left.in_place.key != message.key:
        raise CannotGoOn(
            f"its journal rows have the end of work {message.key}, which a resumed run would not have started"
        )
    left.in_place = None


def _track_effects(left: OpenWork, player: JournalPlayer, effects: Sequence[Effect], at: int) -> None:
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
            raise CannotGoOn(f"its journal rows lead to an effect that can't be resumed: {type(effect).__name__}")
