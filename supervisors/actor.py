"""The actor: one task, one cancel scope, one mailbox, one place in the tree, exactly one end.

An actor is an async function that receives its own `Actor` as first argument, by convention called `me`:

    async def ponger(me: Actor) -> None:
        async for message in me:
            me.reply(message.n)

Everything else in the program holds its `ref` (see `ref`). docs/kernel.md numbers the guarantees.

**One nursery, many scopes.** All actors of a root run in one nursery behind a shield, and this module keeps the tree,
not trio. A nursery of trio cancels all its children at the first error, and it cancels them all at once; OTP's rules
allow neither. So each actor has a cancel scope of its own, a crash is caught in the task in which it happened, and
stopping is a walk down the tree: an actor's body ends first, then its children are ended (`end_children`), then it
reports its end. Only the root cancels scopes that it does not own, and no scope is ever exited from another task. An
actor costs 450 bytes besides its scope, with or without children; tasks are shared (`scheduler`).

**Incarnations.** A supervised actor may run several times. The path, the ref and the mail belong to its place in the
tree and survive a restart. When an incarnation ends, `pending_end` holds how, until the supervisor decides: `reset`
begins the next incarnation, `end_for_good` makes the end final. An actor without a supervisor has one incarnation.

**Time to end.** Waiting for the end of a child is bounded: by the child's `stop_within` seconds, and for a child with
children by theirs plus `MARGIN` (see `time_to_end`). An actor that has not ended by then is reported as stuck, with its
stack, and no longer waited for; the root's deadline ends it.

Invariants:
- `end` is set once, in `_terminate`, which also leaves the tree and notifies every watcher.
- After `_terminate` every message to the actor is a dead letter, and every request to it fails.
- A request that the actor received is answered, failed, or deferred (`take_request`) before it receives the next
  message.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, TypeVarTuple, final

import msgspec
import outcome
import trio

from ..protocol.kernel.errors import (
    ActorCancelled,
    ActorDead,
    ActorError,
    ActorFailed,
    CallboardError,
    EndOfMail,
    NoReply,
    ShuttingDown,
)
from ..protocol.kernel.events import ActorFailed as ActorFailedEvent
from ..protocol.kernel.events import ActorSpawned, ActorStopped, ActorStuck, DeadLetter, EventData
from .mailbox import BOUND, TURN, M, N, check_message, checked_types
from .ref import End, Ref, Request, State, describe
from .scheduler import Reason, Timer
from .user_code import failure_of

if TYPE_CHECKING:
    from ..protocol.kernel.questions import Answer, Question
    from .bus import Stream
    from .escalation import Policy
    from .mailbox import Mailbox
    from .root import Root

T = TypeVar("T")
Args = TypeVarTuple("Args")

Bond = Literal["linked", "watched", "supervised"]
"""Effect of a child's end on its parent: `linked`, a crash crashes the parent; `watched`, none; `supervised`, the
parent is a supervisor and decides about a restart."""

STOP_WITHIN = 1.0
"""Default seconds that an actor has for its clean-up."""

MARGIN = 0.5
"""Seconds that an actor with children has on top of their time to end."""

STOP = object()
"""The signal that `request_stop` puts into the mailbox."""

NO_SCOPE = trio.CancelScope()
"""Scope of an actor whose body does not run; cancelling it has no effect."""

log = logging.getLogger("callboard.actor")

_SPAWNED = ActorSpawned()
_STOPPED: dict[Reason, ActorStopped] = {
    reason: ActorStopped(reason=reason) for reason in ("normal", "stopped", "cancelled")
}


class IncarnationEnded(msgspec.Struct, eq=False):
    """Signal to a supervisor: an incarnation of one of its children ended."""

    child: Actor
    end: End


class Remembers(Protocol):
    """The state of an actor's body, for measuring its memory (see `memory`)."""

    def remembers(self) -> Iterable[object]:
        """Return the objects that make up the state, in any order."""


@final
class Actor(Generic[M]):
    """An actor as its own body and the kernel see it; `Actor[Ping]` receives pings.

    Attributes:
        path: `/` for the root, else the parent's path and the name.
        pending_end: end of the last incarnation, while the supervisor has not yet decided about a restart.
        stream: the event stream of its run.
        stop_within: seconds for its clean-up.
        static: position in its supervisor's list, from 1: such children are stopped one by one, in reverse; 0: stopped
            together with the others.
        asks: the actor whose reply its task awaits (see `ref.refuse_circle`).
        policy: answers questions that pass this actor on their way to the root (see `escalation`).
        crashed_with: crash of a linked child, which this actor crashes with as well.
        keeps: state of the body, for measuring memory; None if the body reports none.
        lent: requests taken with `take_request` and not answered yet.
        timers: pending timers of this incarnation.
    """

    __slots__ = (
        "_callbacks",
        "_children",
        "_context",
        "_count",
        "_end_waiters",
        "_in_hand",
        "_reason",
        "_ref",
        "_scope",
        "_start_waiters",
        "_stop_at",
        "args",
        "asks",
        "body",
        "bond",
        "crashed_with",
        "end",
        "keeps",
        "lent",
        "mailbox",
        "name",
        "parent",
        "path",
        "pending_end",
        "policy",
        "root",
        "state",
        "static",
        "stop_within",
        "stream",
        "timers",
    )

    def __init__(
        self,
        root: Root,
        parent: Actor | None,
        body: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        name: str,
        bond: Bond,
        stop_within: float = STOP_WITHIN,
        bound: int = BOUND,
        stream: Stream | None = None,
        static: int = 0,
    ) -> None:
        self.root: Root = root
        self.parent: Actor | None = parent
        self.name: str = name
        self.path: str = f"{parent.path}/{name}" if parent is not None and parent.parent is not None else f"/{name}"
        self.mailbox: Mailbox = root.mailbox(bound)
        self._ref: Ref[M] | None = None
        self.state: State = "starting"
        self.end: End | None = None
        self.pending_end: End | None = None
        self.stream: Stream = stream or (root.bus.kernel if parent is None else parent.stream)
        self.stop_within: float = stop_within
        self.static: int = static
        self.asks: Actor | None = None
        self.policy: Policy | None = None
        self.body: Callable[..., Awaitable[Any]] = body
        self.args: tuple[Any, ...] = args
        self.bond: Bond = bond
        self._children: dict[str, Actor] | None = None
        self._count = 0
        self._callbacks: list[Callable[[End], None]] | None = None
        self._scope = NO_SCOPE
        self._reason: Reason = "normal"
        self._stop_at = 0.0
        self.crashed_with: BaseException | None = None
        self._in_hand: Request | None = None
        self.keeps: Remembers | None = None
        self.lent: set[Request] | None = None
        self.timers: set[Timer] | None = None
        self._start_waiters: list[Callable[[outcome.Outcome[Any]], None]] | None = None
        self._end_waiters: list[trio.lowlevel.Task] | None = None
        self._context: contextvars.Context | None = None

    def __repr__(self) -> str:
        return f"<Actor {self.path} {self.state}>"

    @property
    def ref(self) -> Ref[M]:
        """Reference for other actors; one and the same object as long as this actor lives."""
        ref = self._ref
        if ref is None:
            ref = Ref(self)
            if self.end is None:
                self._ref = ref
        return ref

    @property
    def stopping(self) -> bool:
        """True once this actor was asked to stop, was interrupted, or crashes with a linked child."""
        return self._reason != "normal" or self.crashed_with is not None

    @property
    def children(self) -> tuple[Ref, ...]:
        """Refs of the living children, in start order."""
        return tuple(child.ref for child in (self._children or {}).values())

    @property
    def child_count(self) -> int:
        """Number of living children."""
        return len(self._children or ())

    @property
    def has_children(self) -> bool:
        """True if a child lives."""
        return bool(self._children)

    @property
    def below(self) -> tuple[Actor, ...]:
        """The living children as actors, for code that inspects the tree (see `introspection`)."""
        return tuple((self._children or {}).values())

    def child(self, name: str) -> Actor | None:
        """Return the living child of this name; None if there is none."""
        return (self._children or {}).get(name)

    # --- mail ------------------------------------------------------------------------------------------------

    def receive(self) -> Coroutine[Any, Any, M]:
        """Receive the next message: signals first, then mail in order.

        Parks while there is none. After 64 messages in a row it lets other tasks run, so it is a checkpoint at least
        that often. Answer a requested message with `reply` before the next `receive`, or take it with `take_request` to
        answer it later.

        Raises:
            EndOfMail: this actor was asked to stop.
        """
        return self._take(EndOfMail)

    def __aiter__(self) -> Actor[M]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, M]:
        return self._take(StopAsyncIteration)

    async def _take(self, at_the_end: type[Exception]) -> Any:
        # `receive` and `async for` share this one coroutine, since it is the most frequently run code of the kernel.
        if self._in_hand is not None:
            self._drop_in_hand(NoReply(f"{self.path} handled the message without a reply"))
        box = self.mailbox
        while True:
            if box.turn <= 0:
                box.new_turn(TURN)
                if self.state == "starting":  # `enter` gave the first turn a length of 0
                    self.started()
                else:
                    await trio.lowlevel.checkpoint()
            if box.signals:
                item = box.signals.popleft()
                if item is STOP:
                    raise at_the_end("told to stop")
            elif mail := box.mail:
                item = mail.popleft()
                if not mail and box.writers:
                    box.admit_writers()
            else:
                await trio.lowlevel.wait_task_rescheduled(box.park())
                continue
            box.turn -= 1
            if type(item) is Request:
                self._in_hand = item
                return item.message
            return item

    @property
    def has_mail(self) -> bool:
        """True if `take_mail` would return a message."""
        return bool(self.mailbox.mail)

    def take_mail(self) -> M:
        """Receive the oldest waiting mail without a checkpoint, for a body that polls its mailbox.

        Only if `has_mail`. Answer a requested message with `reply`, as after `receive`.
        """
        box = self.mailbox
        mail = box.mail
        assert mail
        item = mail.popleft()
        box.earlier += 1
        if not mail and box.writers:
            box.admit_writers()
        if type(item) is Request:
            self._in_hand = item
            item = item.message
        message: M = item
        return message

    def reply(self, value: Any = None) -> None:
        """Answer the current message. No effect if its sender used `tell` and not `ask`."""
        if self._in_hand is not None:
            request, self._in_hand = self._in_hand, None
            request.resolve(outcome.Value(value))

    def refuse(self, error: BaseException) -> None:
        """Answer the current message with an error, which is raised in the asking actor. No effect after a `tell`."""
        if self._in_hand is not None:
            request, self._in_hand = self._in_hand, None
            request.fail(error)

    def take_request(self) -> Request:
        """Take over the current request, to answer it at any later time. It fails if this actor ends before.

        Raises:
            RuntimeError: the sender of the current message used `tell`, not `ask`.
        """
        request, self._in_hand = self._in_hand, None
        if request is None:
            raise RuntimeError("the current message was sent with `tell`, not `ask`, so it has no reply")
        if request.waits:  # else the sender was cancelled before this actor received it, and nothing would remove it
            if self.lent is None:
                self.lent = set()
            self.lent.add(request)
        return request

    def tell_later(self, seconds: float, message: M) -> Timer:
        """Send this actor a message in `seconds`; `timer.cancel()` withdraws it.

        The message is appended to the mail that waits by then, even beyond the bound. Timers end with the incarnation:
        a restarted actor sets its timers again.

        Raises:
            ValueError: `seconds` is negative or not a number.
            TypeError: the message is not a frozen struct.
        """
        if type(message) not in checked_types:
            check_message(message, self.path)
        if not seconds >= 0:
            raise ValueError(f"a timer needs seconds from now, 0 or more, not {seconds!r}")
        timer = Timer(self, message)
        if self.timers is None:
            self.timers = set()
        self.timers.add(timer)
        self.root.alarms.set(seconds, timer)
        return timer

    # --- children --------------------------------------------------------------------------------------------

    def spawn(
        self,
        body: Callable[[Actor[N], *Args], Awaitable[T]],
        *args: *Args,
        name: str | None = None,
        link: bool = True,
        stop_within: float = STOP_WITHIN,
        bound: int = BOUND,
        stream: Stream | None = None,
    ) -> Ref[N, T]:
        """Start a child and return its ref at once.

        Args:
            body: an async function, called as `body(child, *args)`.
            name: last part of its path (default: the function's name), made unique by `#2`, `#3`, ...
            link: a crash of the child crashes this actor as well. With False only holders of its ref learn of it.
            stop_within: seconds for its clean-up when it is ended.
            bound: most messages that may wait in its mailbox.
            stream: an event stream of its own, for it and all actors below it.

        Raises:
            ShuttingDown: the root is stopping, or this actor is ending or has ended.
        """
        child = self.adopt(
            body,
            args,
            name=name,
            bond="linked" if link else "watched",
            stop_within=stop_within,
            bound=bound,
            stream=stream,
        )
        child.launch()
        return child.ref

    async def start(self, body: Callable[[Actor[N], *Args], Awaitable[T]], *args: *Args, **options: Any) -> Ref[N, T]:
        """Start a child like `spawn` and wait until it is ready: it called `started`, received, or returned.

        If the call is cancelled, the child is cancelled too, and its end is waited for.

        Raises:
            ActorFailed: the child crashed before it was ready; it does not crash this actor.
            ActorCancelled: the child was stopped or cancelled before it was ready.
        """
        ref = self.spawn(body, *args, **options)
        await ref._actor.wait_started()  # noqa: SLF001 - the kernel's own ref
        return ref

    def adopt(
        self,
        body: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        *,
        name: str | None,
        bond: Bond,
        stop_within: float = STOP_WITHIN,
        bound: int = BOUND,
        stream: Stream | None = None,
        static: int = 0,
        on_end: Callable[[End], None] | None = None,
    ) -> Actor:
        """Create a child with its place in the tree, not yet running: call `launch` or `launch_soon` next.

        Args:
            on_end: called once with the end, as after `child.on_end(...)`.

        Raises:
            ShuttingDown: the root is stopping, or this actor is ending or has ended.
        """
        if self.root.stopping or self.state in ("stopping", "done", "failed"):
            raise ShuttingDown(f"{self.path} accepts no new work: it is stopping")
        if self._children is None:
            self._children = {}
        label: str = name or str(getattr(body, "__name__", type(body).__name__))
        if label in self._children:
            label = self._free_name(label)
        child = Actor(self.root, self, body, args, label, bond, stop_within, bound, stream, static)
        if on_end is not None:
            child._callbacks = [on_end]
        self._children[label] = child
        return child

    def _free_name(self, label: str) -> str:
        assert self._children is not None
        while True:
            self._count += 1
            name = f"{label}#{self._count + 1}"
            if name not in self._children:
                return name

    async def end_children(self) -> None:
        """End all children: those without a list position together, then the listed ones in reverse start order."""
        self.state = "stopping"  # from here on `adopt` refuses
        children = list((self._children or {}).values())
        await end_for_good([child for child in children if not child.static])
        for child in sorted((child for child in children if child.static), key=lambda child: -child.static):
            await end_for_good([child])

    def time_to_end(self) -> float:
        """Return the upper bound in seconds for ending this actor and all actors below it."""
        if not self._children:
            return self.stop_within
        static = sum(child.time_to_end() for child in self._children.values() if child.static)
        together = max((child.time_to_end() for child in self._children.values() if not child.static), default=0.0)
        return self.stop_within + static + together + MARGIN

    # --- services of the root ------------------------------------------------------------------------------

    def cleanup(self) -> contextlib.AbstractContextManager[trio.CancelScope]:
        """Return a shield for `finally` blocks that have to await, bounded by the time that remains to end.

        finally:
            with me.cleanup():
                await connection.aclose()
        """
        now = trio.current_time()
        remaining = self._stop_at - now if self._stop_at else self.stop_within
        return self.root.shield(remaining)

    @contextlib.contextmanager
    def time_limit(self, scope: trio.CancelScope) -> Iterator[trio.CancelScope]:
        """Enter a scope whose limit the author of the run has set.

        While such a limit counts, the run is not quiescent (`introspection.at_rest`): unloading it would stop the
        clock.
        """
        clocks, run = self.root.clocks, self.stream.run
        clocks[run] += 1
        try:
            with scope:
                yield scope
        finally:
            clocks[run] -= 1
            if not clocks[run]:
                del clocks[run]

    def emit(self, data: EventData, *, id: str = "", corr: str = "") -> None:
        """Publish an event about this actor on the stream of its run. No effect while the stream has no listener."""
        stream = self.stream
        if stream.heard:
            stream.publish(self, data, id=id, corr=corr)

    async def ask_person(self, question: Question) -> Answer:
        """Ask the ancestors of this actor, then the user (see `escalation`)."""
        return await self.root.questions.ask(self, question)

    # --- starting ------------------------------------------------------------------------------------------

    def launch(self, context: contextvars.Context | None = None) -> None:
        """Run the body in a task of the root, with a copy of `context` (default: the caller's context variables).

        A supervised actor always runs in the context of its first start; `context` is ignored.
        """
        stream = self.stream
        if stream.heard:
            stream.publish(self, _SPAWNED)
        if self.bond == "supervised":
            # A restart runs in the context of the first start, not in that of the actor whose crash caused it.
            if self._context is None:
                self._context = contextvars.copy_context()
            context = self._context
        self.root.workers.run(self, None if context is None else context.copy())

    def launch_soon(self, context: contextvars.Context) -> None:
        """Run the body in the next free task: cheaper than `launch` for children that are launched in a row."""
        if self.stream.heard:
            self.stream.publish(self, _SPAWNED)
        self.root.workers.run_soon(self, context)

    def enter(self, scope: trio.CancelScope) -> Awaitable[Any]:
        """Take over `scope` until `leave` and return the body's coroutine. Called by the task that runs the body."""
        self._scope = scope
        if (self._reason != "normal" or self.crashed_with is not None) and self._reason != "stopped":
            scope.cancel()  # interrupted before the body began
        if self._start_waiters is None:
            self.state = "running"  # no task waits for `started`
        else:
            self.mailbox.new_turn(0)  # the first `receive` then calls `started`
        return self.body(self, *self.args)

    def leave(self) -> bool:
        """Give up the scope: the body has ended. Return True if it was not asked to end and has no living child."""
        self._scope = NO_SCOPE
        return not self._children and self._reason == "normal" and self.crashed_with is None

    def started(self, value: Any = None) -> None:
        """Report that this actor is ready; `wait_started` returns `value`."""
        if self.state == "starting":
            self.state = "running"
            self.mailbox.new_turn(TURN)
            waiters, self._start_waiters = self._start_waiters, None
            for wake in waiters or ():
                wake(outcome.Value(value))

    async def wait_started(self) -> Any:
        """Wait for `started` and return its value; None if the actor was ready before the call.

        If this wait is cancelled, the actor is interrupted, and its end is waited for.

        Raises:
            ActorFailed: the actor crashed before it was ready.
            ActorCancelled: it was stopped or cancelled before it was ready.
        """
        if self.state != "starting":
            await trio.lowlevel.checkpoint()
            return None
        task = trio.lowlevel.current_task()

        def wake(result: outcome.Outcome[Any]) -> None:
            trio.lowlevel.reschedule(task, result)

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            if self._start_waiters is not None:
                self._start_waiters.remove(wake)
            return trio.lowlevel.Abort.SUCCEEDED

        self._start_waiters = [*(self._start_waiters or ()), wake]
        try:
            return await trio.lowlevel.wait_task_rescheduled(abort)
        except trio.Cancelled:
            self.interrupt()
            with self.root.shield(self.time_to_end()):
                await self.wait_over()
            raise

    # --- ending --------------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Stop politely: the next `receive` ends the body, ahead of all mail. No effect if it is stopping already."""
        if self.pending_end is None and self.end is None and self._reason == "normal":
            self._reason = "stopped"
            self.mailbox.signal(STOP)

    def interrupt(self) -> None:
        """Stop now: the body sees `trio.Cancelled` at its next checkpoint. No effect if the incarnation has ended."""
        if self.pending_end is None and self.end is None and self._reason != "cancelled":
            self._reason = "cancelled"
            if self._stop_at == 0.0:
                self._stop_at = trio.current_time() + self.stop_within
            self._scope.cancel()

    def crash(self, error: BaseException) -> None:
        """End as if the body had raised `error`, the crash of a linked child. No effect if it is stopping or ended."""
        if self.end is None and self.crashed_with is None and not self.stopping:
            self.crashed_with = error
            if self._stop_at == 0.0:
                self._stop_at = trio.current_time() + self.stop_within
            self._scope.cancel()

    def on_end(self, callback: Callable[[End], None]) -> None:
        """Call `callback` once with the end; immediately if the actor has ended."""
        if self.end is not None:
            callback(self.end)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def not_on_end(self, callback: Callable[[End], None]) -> None:
        """Withdraw a callback of `on_end`. No effect if it was called already, or never added."""
        if self._callbacks and callback in self._callbacks:
            self._callbacks.remove(callback)

    async def wait_over(self) -> End:
        """Wait until this incarnation has ended, whether or not another follows. A checkpoint only if it has not."""
        ended = self.end or self.pending_end
        if ended is None:
            task = trio.lowlevel.current_task()
            self._end_waiters = [*(self._end_waiters or ()), task]
            ended = await trio.lowlevel.wait_task_rescheduled(partial(self._abort_wait_over, task))
        assert ended is not None
        return ended

    def _abort_wait_over(self, task: trio.lowlevel.Task, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        if self._end_waiters is not None:
            self._end_waiters.remove(task)
        return trio.lowlevel.Abort.SUCCEEDED

    def finish(self, reason: Reason, value: Any, error: BaseException | None, *, final: bool = False) -> None:
        """End this incarnation: fail its requests, cancel its timers, then report to the supervisor or end for good.

        Called by the task that ran the body. With `final` no supervisor is consulted.
        """
        end = End(reason=reason, value=value, error=error)
        if self._in_hand is not None:
            self._drop_in_hand(_failure(self, end))
        if self.lent:
            lent, self.lent = self.lent, None
            for request in lent:
                request.fail(_failure(self, end))
        if self.timers:
            for timer in list(self.timers):
                timer.cancel()
        waiters, self._start_waiters = self._start_waiters, None
        for wake in waiters or ():
            if reason == "normal":  # a body that simply returned was ready
                wake(outcome.Value(None))
            elif error is not None:
                wake(outcome.Error(_failure(self, end)))
            else:
                wake(outcome.Error(ActorCancelled(f"{self.path} was {end.reason} before it was ready")))
        parent = self.parent
        if parent is None or parent.state in ("stopping", "done", "failed"):
            final = True
        if final:
            for child in list((self._children or {}).values()):
                child.end_for_good()  # its end was still pending, and no body is left to decide about it
        if self.bond == "supervised" and parent is not None and not final:
            self.pending_end = end
            self.state = "stopping"
            parent.mailbox.signal(IncarnationEnded(self, end))
        else:
            self._terminate(end)
            # A failed start is raised in the starting actor by `start`, so it must not crash that actor as well.
            if error is not None and self.bond == "linked" and parent is not None and waiters is None:
                parent.crash(_failure(self, end))
        end_waiters, self._end_waiters = self._end_waiters, None
        for task in end_waiters or ():
            trio.lowlevel.reschedule(task, outcome.Value(end))

    def reset(self) -> None:
        """Prepare the next incarnation of a supervised actor: same path, ref and mail, state `starting`."""
        self.pending_end = None
        self.state = "starting"
        self._scope = NO_SCOPE
        self._reason = "normal"
        self._stop_at = 0.0
        self.crashed_with = None
        self.policy = None
        signals = self.mailbox.signals
        if signals and STOP in signals:
            signals.remove(STOP)  # the signal belongs to the incarnation that has ended

    def end_for_good(self) -> None:
        """Make a pending end final. No effect if none is pending."""
        end, self.pending_end = self.pending_end, None
        if end is not None:
            self._terminate(end)

    def _terminate(self, end: End) -> None:
        # The one place where an actor ends: it leaves the tree and notifies all watchers, once.
        self.end = end
        self.state = "failed" if end.reason == "crashed" else "done"
        self._ref = None  # actor and ref refer to each other: without this, only the garbage collector frees them
        self.args = ()
        siblings = None if self.parent is None else self.parent._children  # noqa: SLF001 - the same class
        if siblings is not None and siblings.get(self.name) is self:
            del siblings[self.name]
        for item in self.mailbox.close():
            if isinstance(item, Request):
                item.fail(ActorDead(f"{self.path} ended before it handled this message"))
            self.dead_letter(item, "the actor ended before it handled the message")
        if self.root.sent:
            self.root.sent.pop(self, None)
        stream = self.stream
        if stream.heard:
            if end.error is not None:
                code = end.error.code if isinstance(end.error, CallboardError) else "error"
                stream.publish(self, ActorFailedEvent(error=describe(end.error), code=code))
            else:
                stream.publish(self, _STOPPED[end.reason])
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback(end)
            except BaseException as error:  # logged; the other callbacks must still be called
                failure_of(error)
                log.exception("a callback on the end of %s raised", self.path)

    def _drop_in_hand(self, error: ActorError) -> None:
        request, self._in_hand = self._in_hand, None
        if request is not None and not request.answered and not request.abandoned:
            request.fail(error)

    # --- reports -------------------------------------------------------------------------------------------

    def report_stuck(self, seconds: float) -> None:
        """Publish that this actor did not end within `seconds`, with the stack of its task."""
        if self.stream.heard:
            self.stream.publish(self, ActorStuck(seconds=seconds, stack=self.root.stack_of(self)))

    def dead_letter(self, message: Any, reason: str) -> None:
        """Publish that a message to this actor was never handled."""
        stream = self.stream
        if stream.heard:
            if isinstance(message, Request):
                message = message.message
            stream.publish(self, DeadLetter(to=self.path, message=repr(message)[:200], reason=reason))


def _failure(actor: Actor, end: End) -> ActorError:
    if end.error is not None:
        failed = ActorFailed(f"{actor.path} crashed: {describe(end.error)}")
        failed.__cause__ = end.error
        return failed
    return ActorDead(f"{actor.path} ended ({end.reason}) without a reply")


async def end_incarnations(actors: Sequence[Actor]) -> None:
    """Interrupt these actors and wait until none runs, under one deadline; report the remaining ones as stuck."""
    running = [actor for actor in actors if actor.end is None and actor.pending_end is None]
    if not running:
        return
    for actor in running:
        actor.interrupt()
    time = max(actor.time_to_end() for actor in running)
    with trio.move_on_after(time) as limit:
        for actor in running:
            await actor.wait_over()
    if limit.cancelled_caught:
        await trio.lowlevel.checkpoint()  # deadlines of their own expired at this very moment: let them unwind
        for actor in running:
            if actor.end is None and actor.pending_end is None:
                actor.report_stuck(time)


async def end_for_good(actors: Sequence[Actor]) -> None:
    """End these actors as `end_incarnations` does, without leaving a restart to their supervisor."""
    await end_incarnations(actors)
    for actor in actors:
        actor.end_for_good()
