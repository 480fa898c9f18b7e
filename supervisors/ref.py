"""References to actors: `Ref` sends messages to an actor and waits for its end, `Monitor` watches it, `End` is its end.

A ref stays valid through restarts: the mailbox belongs to the actor's place in the tree, not to one incarnation. After
the actor's terminal event every `tell` is a dead letter and every `ask` fails at once.

`Ref[Ping]` accepts a `Ping`; `Ref[Ping, int]` also says that the body returns an int (see `mailbox`).

**Two hot paths.** `tell` appends to the mail lane without any function call if the last message had the same class
(`Mailbox.kind`). `ask` parks the asking task directly on its `Request`: no cancel scope, no channel. A time limit is an
entry in the root's timer queue (`scheduler.Alarms`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, Literal, final

import msgspec
import outcome
import trio

from ..protocol.kernel.errors import (
    ActorCancelled,
    ActorDead,
    ActorFailed,
    AskTimeout,
    Deadlock,
    DoesNotEnd,
    MailboxFull,
)
from ..protocol.kernel.messages import Down
from .mailbox import M_contra, T_co, check_message, checked_types
from .scheduler import Reason
from .user_code import UserCodeError

if TYPE_CHECKING:
    from .actor import Actor

State = Literal["starting", "running", "waiting", "stopping", "done", "failed"]


class End(msgspec.Struct, frozen=True, kw_only=True):  # not gc=False: an error's traceback refers back to its actor
    """The end of an actor.

    Attributes:
        reason: `normal` (its body returned), `stopped` (told to stop), `cancelled` (interrupted), `crashed`.
        value: the value that the body returned.
        error: the exception that it crashed with.
    """

    reason: Reason
    value: Any = None
    error: BaseException | None = None

    @property
    def state(self) -> Literal["done", "failed"]:
        """The actor's last state."""
        return "failed" if self.reason == "crashed" else "done"


@final
class Request:
    """A message whose sender waits for a reply. The receiver calls `reply` or `fail`, the sender awaits `answer`.

    The first reply counts; one that arrives after the sender gave up is a dead letter. The reply counts as a message in
    the asking actor's mailbox, but it bypasses the mail that waits there and resumes the waiting call directly.
    """

    __slots__ = ("_actor", "_asker", "_outcome", "abandoned", "message", "task")

    def __init__(self, message: Any, actor: Actor, asker: Actor | None) -> None:
        self.message: Any = message
        self.abandoned: bool = False
        self._actor = actor
        self._asker = asker
        self.task: trio.lowlevel.Task | None = None
        self._outcome: outcome.Outcome[Any] | None = None

    @property
    def answered(self) -> bool:
        """True once it has its reply or error."""
        return self._outcome is not None

    def reply(self, value: Any = None) -> None:
        """Answer with a value."""
        self.resolve(outcome.Value(value))

    def fail(self, error: BaseException) -> None:
        """Answer with an error, which is raised in the asking actor."""
        self.resolve(outcome.Error(error))

    def resolve(self, result: outcome.Outcome[Any]) -> None:
        """Answer with a value or an error."""
        # Both are races that no one can avoid: a reply may be under way when its asker times out.
        if self._outcome is not None or self.abandoned:
            reason = "the sender no longer waits for the reply" if self.abandoned else "already answered"
            self._actor.dead_letter(result, reason)
            return
        self._outcome = result
        actor = self._actor
        if actor.lent:
            actor.lent.discard(self)
        # The reply bypasses the mailbox, but introspection counts it as a received message.
        if self._asker is not None:
            self._asker.mailbox.earlier += 1
        if actor.root.sent is not None:
            actor.root.sent.count(actor)
        if self.task is not None:
            trio.lowlevel.reschedule(self.task, result)

    @property
    def waits(self) -> bool:
        """True while the sender waits for the reply."""
        return self._outcome is None and not self.abandoned

    def expire(self, seconds: float) -> None:
        """Raise `AskTimeout` in the sender if it still waits. Called by the timer queue after `seconds`."""
        if self.waits and self.task is not None:
            self._give_up()
            late = AskTimeout(f"no reply from {self._actor.path} within {seconds:g} s")
            trio.lowlevel.reschedule(self.task, outcome.Error(late))

    async def answer(self) -> Any:
        """Wait for the reply and return it. A checkpoint only if it has not arrived yet."""
        if self._outcome is not None:
            return self._outcome.unwrap()
        self.task = trio.lowlevel.current_task()
        return await trio.lowlevel.wait_task_rescheduled(self)

    def __call__(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        """Abort function of the waiting sender: the request itself is passed to trio, which saves an object per ask."""
        self._give_up()
        return trio.lowlevel.Abort.SUCCEEDED

    def _give_up(self) -> None:
        self.abandoned = True
        if self._actor.lent:
            self._actor.lent.discard(self)


@final
class Monitor:
    """A watch on one actor: `await monitor.wait()` waits for its end, `cancel()` ends the watch."""

    __slots__ = ("_actor", "_callback", "_sent", "_to", "ref")

    def __init__(self, actor: Actor, to: Ref[Down] | None) -> None:
        self.ref: Ref[Any, Any] = actor.ref
        self._actor = actor
        self._to = to
        self._sent: Down | None = None
        self._callback: Callable[[End], None] | None = None if to is None else self._send
        if self._callback is not None:
            actor.on_end(self._callback)

    def _send(self, end: End) -> None:
        assert self._to is not None
        self._sent = self._down(end)
        self._to.signal(self._sent)

    def _down(self, end: End) -> Down:
        error = None if end.error is None else str(end.error)
        return Down(actor=self.ref.path, state=end.state, error=error)

    async def wait(self) -> Down:
        """Wait for the end and return the one `Down` of this actor; at once if it has ended."""
        return self._down(await self.ref.wait())

    def cancel(self) -> None:
        """End the watch: no `Down` message arrives any more, not even one that was already sent."""
        if self._callback is not None:
            self._actor.not_on_end(self._callback)
        if self._sent is not None and self._to is not None:
            self._to.take_back(self._sent)
            self._sent = None


@final
class Ref(Generic[M_contra, T_co]):
    """Reference to one actor. Cheap to store, compare and send.

    The type parameters are the messages that the actor accepts and the type that its body returns.
    """

    __slots__ = ("_actor", "_box")

    if not TYPE_CHECKING:
        # Allows `Ref[Ping]` alone: defaults of type variables need Python 3.13 at run time.
        __class_getitem__ = classmethod(GenericAlias)

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._box = actor.mailbox

    def __repr__(self) -> str:
        return f"<Ref {self.path} {self.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other._actor is self._actor

    def __hash__(self) -> int:
        return hash(self._actor)

    @property
    def path(self) -> str:
        """Path of the actor in the tree, such as `/run-7f3a/research/plan#2`."""
        return self._actor.path

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self._actor.name

    @property
    def state(self) -> State:
        """starting, running, waiting, stopping, done or failed."""
        return self._actor.state

    @property
    def alive(self) -> bool:
        """False once the terminal event has happened."""
        return self._actor.end is None

    # --- messages -----------------------------------------------------------------------------------------

    async def tell(self, message: M_contra) -> bool:
        """Send a message; return False if the actor has ended (the message is then a dead letter).

        Waits while the mailbox is full, and is a checkpoint only then. Messages of one sender arrive in the order in
        which they were sent.

        Raises:
            TypeError: the message is not a frozen struct.
        """
        kind = type(message)
        box = self._box
        mail: Any = box.mail
        if kind is box.kind:  # the fast path, see `Mailbox.kind`
            if len(mail) < box.room:
                mail.append(message)
                return True
        elif kind not in checked_types:
            check_message(message, self.path)
        if mail is not None and len(mail) < box.room:
            mail.append(message)
            if box.reader is not None:
                box.wake()
        else:
            try:
                await box.put(message)
            except ActorDead:
                self._actor.dead_letter(message, "the actor has ended")
                return False
        self._sent(kind)
        return True

    def tell_nowait(self, message: M_contra) -> bool:
        """Send a message like `tell`, with the same result, but raise `MailboxFull` instead of waiting."""
        kind = type(message)
        if kind not in checked_types:
            check_message(message, self.path)
        try:
            self._box.put_nowait(message)
        except ActorDead:
            self._actor.dead_letter(message, "the actor has ended")
            return False
        self._sent(kind)
        return True

    def _sent(self, kind: type) -> None:
        # After a message on the slow path: allow the fast path for the next one of its class, unless messages are
        # counted.
        sent = self._actor.root.sent
        if sent is not None:
            sent.count()
        elif self._box.reader is None and not self._box.closed:  # it may have parked while this sender waited for room
            self._box.kind = kind

    def signal(self, message: M_contra) -> bool:
        """Send on the signal lane, which overtakes all mail and is never full. For control, not for data.

        Returns False if the actor has ended; the message is then a dead letter.

        Raises:
            TypeError: the message is not a frozen struct.
        """
        if type(message) not in checked_types:
            check_message(message, self.path)
        if self._box.closed:
            self._actor.dead_letter(message, "the actor has ended")
            return False
        self._box.signal(message)
        if self._actor.root.sent is not None:
            self._actor.root.sent.count()
        return True

    def take_back(self, message: Any) -> None:
        """Withdraw a signal that has not been received yet."""
        signals = self._box.signals
        if signals and message in signals:
            signals.remove(message)

    async def ask(self, message: M_contra, timeout: float | None = None) -> Any:
        """Send a message, wait for its reply, and return it.

        Raises:
            ActorDead: the actor has ended, or ended before it received this message.
            ActorFailed: it crashed while handling the message; `__cause__` is the crash.
            NoReply: it received its next message without replying to this one.
            AskTimeout: no reply within `timeout` seconds. The message may have been handled all the same.
            Deadlock: the reply could never come, since the actors wait for each other in a circle.
            TypeError: the message is not a frozen struct.
        """
        if type(message) not in checked_types:
            check_message(message, self.path)
        actor = self._actor
        root = actor.root
        task = trio.lowlevel.current_task()
        asker = root.tasks.get(task)
        if asker is not None:
            if actor.asks is not None or actor is asker:
                refuse_circle(asker, actor)
            asker.asks = actor
        request = Request(message, actor, asker)
        box = self._box
        mail = box.mail
        full = False
        if root.sent is not None:
            root.sent.count(asker)
        try:
            if mail is not None and len(mail) < box.room:  # `put_nowait`, inlined
                mail.append(request)
                if box.reader is not None:
                    box.wake()
            else:
                try:
                    box.put_nowait(request)  # even with a timeout of 0: no time is needed while there is room
                except MailboxFull:
                    full = True
                except ActorDead:
                    raise self._nobody(message) from None
            if not full and (timeout is None or timeout > 0):
                if timeout is not None:
                    root.alarms.set(timeout, request)
                request.task = task
                return await trio.lowlevel.wait_task_rescheduled(request)
            with trio.move_on_after(float("inf") if timeout is None else timeout):
                if full:
                    try:
                        await box.put(request)
                    except ActorDead:
                        raise self._nobody(message) from None
                return await request.answer()
            raise AskTimeout(f"no reply from {self.path} within {timeout:g} s")
        finally:
            if asker is not None:
                asker.asks = None

    def _nobody(self, message: Any) -> ActorDead:
        self._actor.dead_letter(message, "the actor has ended")
        return ActorDead(f"{self.path} has ended and can't answer")

    def monitor(self, to: Ref[Down] | None = None) -> Monitor:
        """Watch this actor for exactly one `Down`. With `to`, that actor receives it as a signal."""
        return Monitor(self._actor, to)

    # --- its end ------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Interrupt the actor in the middle of its work; returns at once.

        Its body sees `trio.Cancelled`; code under `me.cleanup()` has `stop_within` seconds.
        """
        self._actor.interrupt()

    async def stop(self) -> End:
        """Stop the actor and wait until it has ended: it finishes the current message and drops the remaining mail.

        If that takes longer than its `stop_within`, it is interrupted as by `cancel`. The supervisor of a supervised
        actor may start it again afterwards; `Supervisor.stop_child` ends it for good.

        Raises:
            DoesNotEnd: the interruption did not end it in time either (it is reported as stuck).
        """
        actor = self._actor
        if not self.alive or actor.pending_end is not None:
            await trio.lowlevel.checkpoint()
        actor.request_stop()
        with trio.move_on_after(actor.stop_within):
            return await actor.wait_over()
        actor.interrupt()
        time = actor.time_to_end()
        with trio.move_on_after(time):
            return await actor.wait_over()
        actor.report_stuck(time)
        raise DoesNotEnd(f"{self.path} did not end within {time:g} s of being interrupted; its stack is in the events")

    def wait(self) -> Coroutine[Any, Any, End]:
        """Wait for the final end and return it, also if it is a crash. A restart by a supervisor is not an end."""
        actor = self._actor
        return actor.wait_over() if actor.end is None and actor.bond != "supervised" else self._wait()

    async def _wait(self) -> End:
        # A supervised actor may be restarted, so the end of one incarnation (`wait_over`) is not enough.
        actor = self._actor
        if actor.end is None:
            task = trio.lowlevel.current_task()

            def wake(end: End) -> None:
                trio.lowlevel.reschedule(task, outcome.Value(end))

            def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
                actor.not_on_end(wake)
                return trio.lowlevel.Abort.SUCCEEDED

            actor.on_end(wake)
            end: End = await trio.lowlevel.wait_task_rescheduled(abort)
            return end
        await trio.lowlevel.checkpoint()
        return actor.end

    def on_end(self, callback: Callable[[End], None]) -> None:
        """Call `callback` with the end, in the ending task; at once if it has ended. Must be quick and not raise."""
        self._actor.on_end(callback)

    async def result(self) -> T_co:
        """Wait for the end and return the value that the body returned.

        Raises:
            ActorFailed: it crashed; `__cause__` is the crash.
            ActorCancelled: it was stopped or cancelled.
        """
        end = await self.wait()
        if end.reason == "normal":
            value: T_co = end.value
            return value
        if end.error is not None:
            raise ActorFailed(f"{self.path} crashed: {describe(end.error)}") from end.error
        raise ActorCancelled(f"{self.path} was {end.reason}")


def refuse_circle(asker: Actor, target: Actor) -> None:
    """Raise `Deadlock` if `target`, or an actor whose reply it awaits directly or indirectly, waits for `asker`."""
    step: Actor | None = target
    circle = [asker]
    while step is not None:
        circle.append(step)
        if step is asker:
            paths = " -> ".join(actor.path for actor in circle)
            raise Deadlock(f"these actors would wait for each other for ever: {paths}")
        step = step.asks


def crash_text(error: BaseException) -> str:
    """Return the text of an error, preceded by its class unless the text is complete without it (`UserCodeError`)."""
    text = describe(error)
    name = type(error).__name__
    return text if isinstance(error, UserCodeError) or text == name else f"{name}: {text}"


MEMBERS = 3
"""Members of an exception group that a description names."""


def describe(error: BaseException) -> str:
    """Return an error in one line: its text, or its class if it has none. A group is followed by its first members."""
    text = str(error).strip()
    if isinstance(error, BaseExceptionGroup):
        text += ": " + "; ".join(map(crash_text, error.exceptions[:MEMBERS]))
    return text or type(error).__name__
