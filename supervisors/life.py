"""How an actor lives and ends: its task, its scope, its place in the tree, exactly one end.

**One nursery, many scopes.** All actors of a root are tasks of one nursery, which sits behind a shield, and the tree
is kept here, not by trio. Two things trio does not give make that necessary: a nursery cancels all its children
at the first error, and it cancels all at once; OTP's rules ask for neither. So each actor has a cancel scope
of its own, a crash is caught in the task it happened in, and stopping is a walk down the tree: an actor's body ends
first, then its children are ended (see `end_children`), then it reports its end. Nothing but the root touches a
scope that it does not own, so no scope is ever exited from another task. It is cheap as well: an actor costs a
task, a scope and 450 bytes, with children or without.

**Time to end.** Ending a child waits for a bounded time: the child's `stop_within` seconds, and for a
child with children theirs plus half a second. What does not end in that time is reported as stuck, with its stack, and
no longer waited for; the root's deadline disposes of it.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import outcome
import trio

from ..protocol.kernel.errors import ActorCancelled, ActorDead, ActorError, ActorFailed, CallboardError
from ..protocol.kernel.events import ActorFailed as ActorFailedEvent
from ..protocol.kernel.events import ActorSpawned, ActorStopped, ActorStuck, DeadLetter
from .ending import end_together
from .mailbox import BOUND, TURN
from .ref import End, Reason, Ref, Request, State, describe
from .user_code import failure_of

if TYPE_CHECKING:
    from .actor import Actor
    from .alarms import Timer
    from .bus import Stream
    from .escalation import Policy
    from .mailbox import Mailbox
    from .memory import Remembers
    from .root import Root

Bond = Literal["linked", "watched", "supervised"]

log = logging.getLogger("callboard.actor")

STOP_WITHIN = 1.0
"""Default seconds that an actor has for its clean-up."""

MARGIN = 0.5
"""What an actor with children gets on top of their time."""

STOP = object()
"""The signal that `request_stop` puts into the mailbox."""

_SPAWNED = ActorSpawned()
_STOPPED: dict[Reason, ActorStopped] = {
    reason: ActorStopped(reason=reason) for reason in ("normal", "stopped", "cancelled")
}


NO_SCOPE = trio.CancelScope()
"""Stands for the scope of an actor whose body does not run; cancelling it does nothing."""


class ChildEnded(msgspec.Struct, eq=False):
    """Signal to a supervisor: one of its children ended by itself."""

    child: Life
    end: End


class Life:
    """The kernel's side of an actor; `Actor` adds what its body sees."""

    __slots__ = (
        "_callbacks",
        "_children",
        "_context",
        "_count",
        "_in_hand",
        "_over",
        "_ready",
        "_reason",
        "_ref",
        "_scope",
        "_stop_at",
        "args",
        "asks",
        "body",
        "bond",
        "crashed_with",
        "dormant",
        "end",
        "keeps",
        "lent",
        "mailbox",
        "name",
        "parent",
        "path",
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
        self.root = root
        self.parent = parent
        self.name = name
        self.path: str = f"{parent.path}/{name}" if parent is not None and parent.parent is not None else f"/{name}"
        """`/` for the root, else the parent's path and my name."""
        self.mailbox: Mailbox = root.mailbox(bound)
        self._ref: Ref | None = None
        self.state: State = "starting"
        self.end: End | None = None
        self.dormant: End | None = None
        """How my last life ended, while my supervisor has not yet decided whether there is another."""
        self.stream: Stream = stream or (root.bus.kernel if parent is None else parent.stream)
        """The event stream I report to: my run's."""
        self.stop_within = stop_within
        self.static = static
        """My place in my supervisor's list, from 1 (stopped one by one in reverse); 0: stopped with the others."""
        self.asks: Life | None = None
        """Whom its task is asking at the moment (see `refuse_circle`)."""
        self.policy: Policy | None = None
        """Answers questions that pass on their way to the root (see `escalation`)."""
        self.body = body
        self.args = args
        self.bond: Bond = bond
        self._children: dict[str, Actor] | None = None
        self._count = 0
        self._callbacks: list[Callable[[End], None]] | None = None
        self._scope = NO_SCOPE
        self._reason: Reason = "normal"
        self._stop_at = 0.0
        self.crashed_with: BaseException | None = None
        """What a linked child of mine crashed with, if one did."""
        self._in_hand: Request | None = None
        self.keeps: Remembers | None = None
        """Says what my body remembers, for who measures it (see `memory`)."""
        self.lent: set[Request] | None = None
        """Requests taken to be answered later."""
        self.timers: set[Timer] | None = None
        """Those of this life whose time is still to come."""
        self._ready: list[Callable[[outcome.Outcome[Any]], None]] | None = None
        self._over: list[trio.lowlevel.Task] | None = None
        self._context: contextvars.Context | None = None

    def __repr__(self) -> str:
        return f"<Actor {self.path} {self.state}>"

    @property
    def ref(self) -> Ref:
        """What others hold of me; one and the same object as long as I live."""
        ref = self._ref
        if ref is None:
            ref = Ref(self)
            if self.end is None:
                self._ref = ref
        return ref

    @property
    def stopping(self) -> bool:
        """Whether I was told to stop or am being interrupted."""
        return self._reason != "normal" or self.crashed_with is not None

    def launch(self, context: contextvars.Context | None = None) -> None:
        """Run my body in a task of the root's nursery, with these context variables, by default those of the caller."""
        stream = self.stream
        if stream.heard:
            stream.publish(self, _SPAWNED)
        if self.bond == "supervised":
            # A restart runs in the context of the first start, not in that of whatever crashed.
            if self._context is None:
                self._context = contextvars.copy_context()
            context = self._context
        self.root.workers.run(self, None if context is None else context.copy())

    def launch_soon(self, context: contextvars.Context) -> None:
        """As `launch`, in the next task that is free: cheaper, for children that are launched in a row."""
        if self.stream.heard:
            self.stream.publish(self, _SPAWNED)
        self.root.workers.run_soon(self, context)

    def started(self, value: Any = None) -> None:
        """Tell my starter that I am ready (`value` is what it gets)."""
        if self.state == "starting":
            self.state = "running"
            self.mailbox.new_turn(TURN)
            ready, self._ready = self._ready, None
            for callback in ready or ():
                callback(outcome.Value(value))

    async def wait_started(self) -> Any:
        """Wait for `started` and return its value; raise `ActorFailed`/`ActorCancelled` if I end before."""
        if self.state != "starting":
            await trio.lowlevel.checkpoint()
            return None
        task = trio.lowlevel.current_task()

        def wake(result: outcome.Outcome[Any]) -> None:
            trio.lowlevel.reschedule(task, result)

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            if self._ready is not None:
                self._ready.remove(wake)
            return trio.lowlevel.Abort.SUCCEEDED

        self._ready = [*(self._ready or ()), wake]
        try:
            return await trio.lowlevel.wait_task_rescheduled(abort)
        except trio.Cancelled:
            self.interrupt()
            with self.root.shield(self.time_to_end()):
                await self.wait_over()
            raise

    def request_stop(self) -> None:
        """Polite: the body sees the end of its mail at the next `receive`, ahead of all mail."""
        if self.dormant is None and self.end is None and self._reason == "normal":
            self._reason = "stopped"
            self.mailbox.signal(STOP)

    def interrupt(self) -> None:
        """Now: the body sees `trio.Cancelled` at its next checkpoint."""
        if self.dormant is None and self.end is None and self._reason != "cancelled":
            self._reason = "cancelled"
            if self._stop_at == 0.0:
                self._stop_at = trio.current_time() + self.stop_within
            self._scope.cancel()

    def crash(self, error: BaseException) -> None:
        """End me as if my body had raised `error` (a linked child did)."""
        if self.end is None and self.crashed_with is None and not self.stopping:
            self.crashed_with = error
            if self._stop_at == 0.0:
                self._stop_at = trio.current_time() + self.stop_within
            self._scope.cancel()

    def on_end(self, callback: Callable[[End], None]) -> None:
        """Call back once with the end; at once if it has happened."""
        if self.end is not None:
            callback(self.end)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def not_on_end(self, callback: Callable[[End], None]) -> None:
        """Take a callback back."""
        if self._callbacks and callback in self._callbacks:
            self._callbacks.remove(callback)

    async def wait_over(self) -> End:
        """Wait until this life of mine is over, whether or not there is another. A checkpoint only if it is not."""
        ended = self.end or self.dormant
        if ended is None:
            task = trio.lowlevel.current_task()
            self._over = [*(self._over or ()), task]
            ended = await trio.lowlevel.wait_task_rescheduled(partial(self._no_longer_waited_for, task))
        assert ended is not None
        return ended

    def _no_longer_waited_for(self, task: trio.lowlevel.Task, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        if self._over is not None:
            self._over.remove(task)
        return trio.lowlevel.Abort.SUCCEEDED

    def revive(self) -> None:
        """After a supervised life: back to `starting`, with the same place, ref and mail."""
        self.dormant = None
        self.state = "starting"
        self._scope = NO_SCOPE
        self._reason = "normal"
        self._stop_at = 0.0
        self.crashed_with = None
        self.policy = None
        signals = self.mailbox.signals
        if signals and STOP in signals:
            signals.remove(STOP)  # it was meant for the life that is over

    def bury(self) -> None:
        """After a supervised life: there is no other."""
        end, self.dormant = self.dormant, None
        if end is not None:
            self._farewell(end)

    def time_to_end(self) -> float:
        """Upper bound in seconds for ending me and all below me."""
        if not self._children:
            return self.stop_within
        static = sum(child.time_to_end() for child in self._children.values() if child.static)
        together = max((child.time_to_end() for child in self._children.values() if not child.static), default=0.0)
        return self.stop_within + static + together + MARGIN

    def report_stuck(self, seconds: float) -> None:
        """Tell that I do not end, and where I stand."""
        if self.stream.heard:
            self.stream.publish(self, ActorStuck(seconds=seconds, stack=self.root.stack_of(self)))

    def dead_letter(self, message: Any, reason: str) -> None:
        """Report a message to me that was never handled."""
        stream = self.stream
        if stream.heard:
            if isinstance(message, Request):
                message = message.message
            stream.publish(self, DeadLetter(to=self.path, message=repr(message)[:200], reason=reason))

    @property
    def has_children(self) -> bool:
        """Whether a child of mine lives."""
        return bool(self._children)

    def enter(self, scope: trio.CancelScope) -> Awaitable[Any]:
        """My body is about to run in `scope`, which is mine until I leave it: its coroutine."""
        self._scope = scope
        if self.stopping and self._reason != "stopped":
            scope.cancel()  # I was interrupted before I began
        if self._ready is None:
            self.state = "running"  # no task waits for `started`
        else:
            self.mailbox.new_turn(0)  # so that the first `receive` looks whether it has to tell them
        return self.body(self, *self.args)

    def leave(self) -> None:
        """My body is over, and its scope no longer mine."""
        self._scope = NO_SCOPE

    def finish(self, reason: Reason, value: Any, error: BaseException | None, *, final: bool = False) -> None:
        """A life is over: settle what hung on it, and leave the rest to the supervisor, if there is one."""
        end = End(reason=reason, value=value, error=error)
        if self._in_hand is not None:
            self._drop_in_hand(_failure(self, end))
        lent, self.lent = self.lent, None
        for request in lent or ():
            request.fail(_failure(self, end))
        for timer in list(self.timers or ()):
            timer.cancel()
        somebody_starts_me = self._ready is not None
        self._start_over(end)
        parent = self.parent
        if parent is None or parent.state in ("stopping", "done", "failed"):
            final = True
        if final:
            for child in list((self._children or {}).values()):
                child.bury()  # one that ended when no body was left to decide about it
        if self.bond == "supervised" and parent is not None and not final:
            self.dormant = end
            self.state = "stopping"
            parent.mailbox.signal(ChildEnded(self, end))
        else:
            self._farewell(end)
            if error is not None and self.bond == "linked" and parent is not None and not somebody_starts_me:
                parent.crash(_failure(self, end))
        over, self._over = self._over, None
        for task in over or ():
            trio.lowlevel.reschedule(task, outcome.Value(end))

    def _farewell(self, end: End) -> None:
        """The one place where an actor ends: leave the tree and tell all watchers, once."""
        self.end = end
        self.state = end.state
        self._ref = None  # else each dead actor would be a circle, left to the garbage collector
        self.args = ()
        siblings = None if self.parent is None else self.parent._children  # noqa: SLF001 - the same class
        if siblings is not None and siblings.get(self.name) is self:
            del siblings[self.name]
        for item in self.mailbox.close():
            if isinstance(item, Request):
                item.fail(ActorDead(f"{self.path} ended before it came to this message"))
            self.dead_letter(item, "the actor ended before it came to it")
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
            except BaseException as error:  # reported; the others have to learn of the end as well
                failure_of(error)
                log.exception("a callback on the end of %s raised", self.path)

    def _start_over(self, end: End) -> None:
        """Tell who waits for my start, if it is not done: a body that simply returned was ready enough."""
        ready, self._ready = self._ready, None
        for callback in ready or ():
            if end.reason == "normal":
                callback(outcome.Value(None))
            elif end.error is not None:
                callback(outcome.Error(_failure(self, end)))
            else:
                callback(outcome.Error(ActorCancelled(f"{self.path} was {end.reason} before it was ready")))

    def _drop_in_hand(self, error: ActorError) -> None:
        request, self._in_hand = self._in_hand, None
        if request is not None and not request.answered and not request.abandoned:
            request.fail(error)

    async def end_children(self) -> None:
        """End the children that were started freely all together, then the listed ones in reverse start order."""
        self.state = "stopping"  # from here on `adopt` refuses
        children = list((self._children or {}).values())
        await end_together([child for child in children if not child.static])
        for child in sorted((child for child in children if child.static), key=lambda child: -child.static):
            await end_together([child])


def _failure(actor: Life, end: End) -> ActorError:
    if end.error is not None:
        failed = ActorFailed(f"{actor.path} crashed: {describe(end.error)}")
        failed.__cause__ = end.error
        return failed
    return ActorDead(f"{actor.path} ended ({end.reason}) without a reply")
