"""The driver: plays a decider on the mail of an actor.

Whatever decides (a graph, a map, a workflow, a conversation) is a *decider*: a plain object, synchronous and
deterministic, without clock, randomness or I/O. It gets a message and answers with what is to be done:

    decider.begin(request)  -> [effect, ...]
    decider.on(message)     -> [effect, ...]     until one of them is Finish

The driver is the other half, written once for all of them. It takes messages from the mailbox of its actor, hands them
to the decider, and carries the effects out. `Work` is done by a child actor; the end of that actor is one message in
the mailbox here (`WorkDone` and its kinds; `WorkFailed` if it crashed or was cancelled from outside). So what happened
in a run is the list of its messages: given to a fresh decider they give the same effects
(tests/support/second_decider.py), and nothing that a decider knows is on Python's stack.

Most work is done by child actors, so that it can be seen, cancelled and done side by side. `InPlace` work is done in
the task of the driver's own actor: a model's reply, for which an agent waits and does nothing else. An actor of its own
for each would put another line into the tree that users watch, and move the events of a request from the agent's path
to one below it. Its result goes through the mailbox as well.

In a durable run what a decider is told is kept (`work/journal`). A driver that is made in a later life of the run tells
its decider that past first, and goes on with what was open (`past`).

A decider that finishes, and a driver that is interrupted (by a cancel from above), leave nothing under way: it is
interrupted and waited for, as long as there is time. The decider counts what that cost (`Interrupted`).

What is told by what belongs to the decider's own actor (`tell`: the end of a child agent) always fits into the mailbox,
waits neither for work in place nor for the driver's turn, and reaches the decider even when that is over: then it only
writes it down. So it is told before anything follows from it elsewhere: a child that gets no answer to its question
goes on after its parent has been told that it is closed.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec
import trio

from ...protocol.effects import Answer, Effect, Emit, Finish, InPlace, Reject, SetTimer, WhenIdle, Work
from ...protocol.errors import CallboardError, WorkCancelled, WorkCrashed
from ...protocol.failure import Failure
from ...protocol.kernel.messages import Message
from ...protocol.messages import CallAnswered, FromBelow, Idle, Interrupted, TimerFired, WorkDone, WorkFailed
from ...supervisors import Actor, End
from ...supervisors.ref import crash_text
from ..work.journal.scope import Player, here
from .beside import Beside
from .deciding import Decider, Tape, recorder
from .past import Gone, Left, fold

Performer: TypeAlias = Callable[["Actor", Any], Awaitable[WorkDone]]
"""Body of the actor that does a piece of work, which it is given."""


class _Look(Message, frozen=True):
    """Wakes the driver, which has something to do in its own task."""


_LOOK = _Look()


class Driver:
    """See the module.

    Args:
        me: whose mailbox it reads, and whose children do the work; the one who makes the driver.
        decider: what is played.
        performers: who does which kind of work.
        at_once: how much of it is under way together; the rest waits in its order.
        afresh: makes another decider like this one, for the `recorder`.
        beside: who carries out effects that are no work.
        tapes: what else writes down what is decided.
        recalls: told, in a later life of a durable run, which work had ended in earlier ones.

    Attributes:
        player: keeps it, in a durable run.
    """

    def __init__(
        self,
        me: Actor,
        decider: Decider,
        performers: Mapping[type[Work], Performer],
        *,
        at_once: int,
        afresh: Callable[[], Decider],
        beside: Beside | None = None,
        tapes: Sequence[Tape] = (),
        recalls: Callable[[Player, list[Gone]], Awaitable[None]] | None = None,
    ) -> None:
        self._me = me
        self._decider = decider
        self._performers = performers
        self._at_once = max(1, at_once)
        records, scope = recorder.get(), here(me)
        self.player = None if scope is None else scope.player()
        if self.player is not None:
            self._decider = self.player.heard_by(decider, self.tell)
        kept = () if self.player is None else (self.player,)
        # What a run is told in the place of what a replay comes to is on no tape.
        played = self.player is not None and self.player.lines_up
        self._tapes = (*tapes, *kept) if records is None or played else (*tapes, *kept, records(decider, afresh))
        self._recalls = recalls
        self._left: Left | None = None  # of an earlier life
        self._ready: deque[Work] | None = None  # made when there is work: an empty one takes 760 bytes
        self._lanes: dict[str, deque[Work]] = {}  # of each lane that is taken, what waits for it
        self._running: dict[int, tuple[Actor, float]] = {}
        self._failed: dict[int, Actor] = {}  # of each failure that the decider has not been told yet
        self._in_place: InPlace | None = None
        self._is_in_place = False
        self._beside = beside
        self._instantly = {} if beside is None else beside.at_once
        self._is_stepping = False
        self._idle: str | None = None
        self._finish: Finish | None = None
        self._error: Exception | None = None
        self._ending = False
        self._context = contextvars.copy_context()  # for work that is begun by a step in another task
        self._now = trio.lowlevel.current_clock().current_time  # `trio.current_time` without two calls in between

    async def play(self, request: Any) -> Any:
        """Until the decider finishes; the result of its `Finish`.

        Raises:
            CallboardError: the decider has finished with a failure.
            ShuttingDown: no new work is admitted.
            EndOfMail: the actor was told to stop.
        """
        me, decider, receive = self._me, self._decider, self._me.receive
        decider.heard = me.stream.heard
        me.keeps = decider
        try:
            if self.player is not None and self.player.past:
                gone = await self._go_on(self.player, request)
                if self._recalls is not None:
                    await self._recalls(self.player, gone)
            else:
                effects = decider.begin(request)
                for tape in self._tapes:
                    tape.wrote(request, effects)
                self._carry_out(effects)
            while self._finish is None:
                if self._in_place is not None:
                    await self._do_in_place(self._in_place)
                elif self._idle is not None and not me.has_mail:
                    await self._tell_idle(self._idle)
                message = await receive()
                if message is not _LOOK:
                    self._step(message)
                elif self._error is not None:
                    raise self._error
        finally:
            self._ending = True
            me.keeps = None
            if self._beside is not None:
                self._take_what_is_left()
            if self._running:
                await self._interrupt_all()
        if self._finish.failure is not None:
            raise self._finish.failure.restore()
        return self._finish.result

    async def _go_on(self, player: Player, request: Any) -> list[Gone]:
        """Where the decider was when the process was killed that played it before; work that had ended then."""
        gone: list[Gone] = []
        others = [tape for tape in self._tapes if tape is not player]
        left = self._left = fold(self._decider, player, request, others, None if self._recalls is None else gone)
        self._decider.heard = self._me.stream.heard
        self._in_place, self._idle, self._finish = left.in_place, left.idle, left.finish
        for name, at in left.timers.items():
            self._me.tell_later(max(0.0, (at - player.now) / 1000), TimerFired(name))
        for work in left.work.values():
            self._line_up_in_its_lane(work)
        ends = self._finish is not None or player.ends
        if self._beside is not None:
            self._is_stepping = True  # what is told meanwhile waits
            self._beside.go_on(player, left.family, ends=ends)
            if ends:
                await self._beside.caught_up()
            self._is_stepping = False
        player.there(over=self._finish is not None)
        if self._finish is None and player.ends:
            self._is_stepping = True
            await trio.sleep_forever()  # who wanted that ends us now
        if self._ready:
            self._begin_work()
        self._take_mail()  # what it is told of how things are now comes before work in place
        return gone

    def _step(self, message: Message) -> None:
        self._decider.heard = self._me.stream.heard
        self._is_stepping = True
        try:
            self._carry_out(self._hand_over(message))
        finally:
            self._is_stepping = False
        if type(message) is WorkFailed:
            self._failed.pop(message.key, None)

    def _tell(self, message: Message) -> None:
        """Work has ended; we are in its task. A step waits for nothing, so it is made at once where the driver sleeps.

        Waking it for that would be one more turn of trio's loop per piece of work, which costs as much as the step.
        """
        box = self._me.mailbox
        if box.reader is None or self._is_stepping:  # it is at something else: there may be older mail
            box.put_own(message)
            if self._is_in_place and not self._is_stepping:
                self._take_mail()
            return
        try:
            self._step(message)
        except Exception as error:  # noqa: BLE001 - it is raised again, in the driver's own task
            self._error = error
        if self._has_to_look:
            box.put_own(_LOOK)
        else:
            box.earlier += 1  # it has received one more

    def tell(self, message: FromBelow) -> None:
        """See the module; from any task."""
        if self._ending or self._me.stopping:
            message = msgspec.structs.replace(message, late=True)
        if self._ending:
            self._hand_over(message)
            return
        wakes = self._me.mailbox.reader is None and not (self._is_in_place or self._is_stepping or self._finish)
        self._tell(message)
        if wakes:  # others might go on before it comes to its mail
            self._take_mail()
            if self._has_to_look:
                self._me.mailbox.put_own(_LOOK)

    @property
    def _has_to_look(self) -> bool:
        """Whether there is something for the driver's own task to do."""
        return bool(self._finish or self._in_place or self._idle is not None or self._error)

    def _take_mail(self) -> None:
        """While the driver is at something else: steps for all mail there is."""
        try:
            while self._error is None and self._finish is None and self._me.has_mail:
                message = self._me.take_mail()
                if message is not _LOOK:
                    self._step(message)
        except Exception as error:  # noqa: BLE001 - it is raised again, in the driver's own task
            self._error = error
            self._me.mailbox.put_own(_LOOK)

    def _take_what_is_left(self) -> None:
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
                about.emit(effect.event, id=effect.id)
            elif type(effect) in self._performers:
                self._queue(effect)
            elif type(effect) is Answer:
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
                self._instantly[type(effect)](effect)
        if self._ready:
            self._begin_work()

    def _answer(self, effect: Answer) -> None:
        """Work that has asked the decider is told what it says, unless it has ended meanwhile."""
        if effect.key in self._running:
            self._running[effect.key][0].ref.tell_nowait(CallAnswered(effect.value, effect.failed))

    async def _tell_idle(self, name: str) -> None:
        me = self._me
        if me.root.pauses is not None:
            await me.root.pauses.passed(me)
            if me.has_mail:  # it was written to while it was paused
                return
        await self._mail_first(None)
        if me.has_mail or self._idle is None:
            return
        self._idle = None
        me.mailbox.put_own(Idle(name))

    async def _mail_first(self, key: int | None) -> None:
        """In a replay: what others have told the decider before it went on, they do first."""
        player = self.player
        if player is not None and player.lines_up:
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
        self._line_up_in_its_lane(work)

    def _line_up_in_its_lane(self, work: Work) -> None:
        if work.lane is not None:
            if work.lane in self._lanes:
                self._lanes[work.lane].append(work)
                return
            self._lanes[work.lane] = deque()
        self._line_up(work)

    def _line_up(self, work: Work) -> None:
        if self._ready is None:
            self._ready = deque()
        self._ready.append(work)

    def _begin_work(self) -> None:
        ready, running, now = self._ready, self._running, self._now()
        assert ready is not None
        while ready and len(running) < self._at_once:
            work = ready.popleft()
            child = self._me.adopt(self._perform, (work,), name=work.name, bond="watched")
            running[work.key] = (child, now)
            child.on_end(partial(self._ended, work))
            if self.player is not None:
                self._keep(self.player, child, work)
            child.launch_soon(self._context)
            if self._left is not None and work.key in self._left.answers:
                self._answer(self._left.answers.pop(work.key))

    def _keep(self, player: Player, child: Actor, work: Work) -> None:
        """The actor is a part of a durable run."""
        left = self._left
        player.scopes.begun(child, player, work, answered=left is not None and work.key in left.asked)
        if left is not None:
            left.asked.discard(work.key)

    async def _do_in_place(self, work: InPlace) -> None:
        self._in_place, self._is_in_place = None, True
        began = self._now()
        try:
            self._take_mail()
            await self._mail_first(work.key)
            message = await self._performers[type(work)](self._me, work)
        except CallboardError as error:
            message = WorkFailed(work.key, failure=Failure.of(error), seconds=self._now() - began)
        except trio.Cancelled:
            self._hand_over(Interrupted(work.key, seconds=self._now() - began))
            raise
        finally:
            self._is_in_place = False
        self._me.mailbox.put_own(message)

    async def _perform(self, child: Actor, work: Work) -> WorkDone:
        """Body of the actor that does it: not before it may, if it or an actor above it is paused."""
        if child.root.pauses is not None:
            await child.root.pauses.passed(child)
        player, perform = self.player, self._performers[type(work)]
        if player is None or not player.lines_up:
            return await perform(child, work)
        await player.line_up(work)
        return await player.played_in_turn(work.key, perform(child, work))

    def _ended(self, work: Work, end: End) -> None:
        """Called in the task that ends: its result is mail, like everything else that the decider gets."""
        child, began = self._running.pop(work.key)
        if self.player is not None:
            self.player.scopes.ended(child)
        if work.lane is not None:
            self._pass_on(work.lane)
        if self._ending:
            self._hand_over(Interrupted(work.key, seconds=self._now() - began))
            return
        message: WorkDone = end.value
        if end.reason != "normal":
            self._failed[work.key] = child
            seconds, crashed = self._now() - began, end.error is not None
            message = WorkFailed(work.key, failure=Failure.of(_error_of(end)), crashed=crashed, seconds=seconds)
        self._tell(message)

    def _pass_on(self, lane: str) -> None:
        """A lane is free: what waits for it may begin."""
        waiting = self._lanes[lane]
        if waiting:
            self._line_up(waiting.popleft())
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
    afresh: Callable[[], Decider],
    request: Any,
    performers: Mapping[type[Work], Performer],
    *,
    at_once: int = 1_000,
) -> Any:
    """Play a new decider on the mail of `me`; see `Driver`."""
    return await Driver(me, afresh(), performers, at_once=at_once, afresh=afresh).play(request)
